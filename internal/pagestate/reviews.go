package pagestate

import "time"

// ReviewList lists the last inputs to review, deferred and audited ones together, as one source may know
// them. Of those that still want a reading it has nothing that tells the one from the other, what the
// model answered, or whether another source has read them.
type ReviewList struct {
	// Why says why there is no list: "off" or "not allowed".
	Why    string   `json:"why"`
	Kept   int      `json:"kept"`   // most inputs of one model that are kept
	Models []string `json:"models"` // models of which inputs may be seen
	// Version changes with the list.
	Version string `json:"version"`
	// Enter says whether outcomes may be entered here, and EnterWhy why not: "no ledger" or "not allowed".
	Enter    bool   `json:"enter"`
	EnterWhy string `json:"enter_why"`
	// Source is whom outcomes are entered as; empty where a name must be given.
	Source string `json:"source"`
	// Classes lists the classes of each policy that decided on an input of the list, by hash.
	Classes map[string][]string `json:"classes"`
	// Reviews lists the open ones first, the oldest first, then the others, the latest first.
	Reviews []Review `json:"reviews"`
	Lost    int      `json:"lost"` // inputs that waited for a reading when others took their place
}

// Review is one input to review.
type Review struct {
	Key    string    `json:"key"` // names the input in an Entry
	At     time.Time `json:"at"`
	Model  string    `json:"model"`
	ID     string    `json:"id"`     // from the client; may be empty
	URL    string    `json:"url"`    // where to look at it; empty for nowhere
	Policy string    `json:"policy"` // hash of the policy
	State  string    `json:"state"`  // open; entered if this source has read it; read by another if it has not and no reading is wanted
	// Outcome is null while a further reading is wanted, and for a source that has not read the input.
	Outcome *EnteredOutcome `json:"outcome"`

	Receipt []byte `json:"-"` // sealed
}

// EnteredOutcome is an input's entered truth beside the model's prediction.
type EnteredOutcome struct {
	Truth     string `json:"truth"`
	Predicted string `json:"predicted"`
}

// Entry is an outcome that a person enters.
type Entry struct {
	Key      string `json:"key"` // of the Review
	Truth    string `json:"truth"`
	Source   string `json:"source"` // who says so; ignored where the daemon knows
	SawModel bool   `json:"saw_model"`
}
