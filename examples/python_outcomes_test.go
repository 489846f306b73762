package examples_test

import "testing"

// TestPythonOutcomes takes receipts with results, and sends them back with the truth.
func TestPythonOutcomes(t *testing.T) {
	t.Parallel()
	d := serveLedger(t)
	r := script(t, `
import time
recorded = numpy.load(sys.argv[2])[:, :40]
ids = [str(i) for i in range(40)]
with ckd.Client(sys.argv[1]) as client, client.session("fetal-health", receipts=ckd.ALL) as session:
    streamed = session.decide(ids, recorded)
    called = client.decompose("fetal-health", recorded, ["again" + i for i in ids], receipts=ckd.REVIEWED)
    assert all(r.review and r.receipt for r in streamed + called), streamed
    assert not client.decompose("fetal-health", recorded)[0].receipt

    outcomes = [ckd.Outcome(r.receipt, "normal", "reader-1", time=time.time() if i == 0 else 0.0) for i, r in enumerate(streamed)]
    outcomes.append(ckd.Outcome(b"forged", "normal", "reader-1"))
    answers = client.report_outcomes(outcomes)
    assert all(a.status in ("counted", "second_read_wanted") and not a.error for a in answers[:-1]), answers
    assert answers[-1].status == "forged" and "outcomes[40].receipt" in answers[-1].error, answers[-1]
    assert {a.status for a in client.report_outcomes(outcomes[:40])} <= {"duplicate"}
with ckd.Client("127.0.0.1:1", patience=0.1) as nobody:
    (lost,) = nobody.report_outcomes(outcomes[:1])
    assert lost.status == "unsent" and lost.error, lost
`, d.GRPC[0], recording)
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
}
