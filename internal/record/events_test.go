package record

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// logLine returns an event of KServe's logger, with data as JSON.
func logLine(kind, id, data string) string {
	return `{"specversion":"1.0","id":"` + id + `","source":"http://localhost:9081/","type":"org.kubeflow.serving.inference.` + kind +
		`","datacontenttype":"application/json","inferenceservicename":"heart","metadata":"{}","data":` + data + "}\n"
}

// outputs returns an answer with tensors.
func outputs(tensors ...string) string {
	return `{"model_name":"heart","id":"1","outputs":[` + strings.Join(tensors, ",") + `]}`
}

const (
	onePass   = `{"name":"passes","datatype":"FP32","shape":[1,2,2],"data":[0.25,0.75,1,0]}`
	twoInputs = `{"name":"passes","datatype":"FP32","shape":[2,2,2],"data":[[[0.1,0.9],[0.2,0.8]],[[0.3,0.7],[0.4,0.6]]]}`
	oneLabel  = `{"name":"label","datatype":"BYTES","shape":[1],"data":["a \"b\" \u00e4]"]}`
	twoLabels = `{"name":"label","datatype":"BYTES","shape":[2],"data":["b","c"]}`
)

// writeEvents writes a file, and returns its path.
func writeEvents(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadEvents(t *testing.T) {
	passes := func(inputs int, values ...float32) *Array {
		return &Array{Shape: []int{inputs, 2, 2}, Float32: values, InputsFirst: true}
	}
	answer := func(tensor string) string { return logLine("response", "1", outputs(tensor)) }
	for name, c := range map[string]struct {
		text, member string
		want         *Array
	}{
		"one":              {answer(onePass), "", passes(1, 0.25, 0.75, 1, 0)},
		"without an end":   {strings.TrimSpace(answer(onePass)), "", passes(1, 0.25, 0.75, 1, 0)},
		"joined":           {answer(twoInputs) + "\n" + logLine("response", "2", outputs(onePass)), "", passes(3, 0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6, 0.25, 0.75, 1, 0)},
		"passes first":     {answer(`{"name":"passes","datatype":"FP32","shape":[2,1,2],"parameters":{"layout":"SNK"},"data":[0.25,0.75,1,0]}`), "", passes(1, 0.25, 0.75, 1, 0)},
		"passes first all": {logLine("response", "1", `{"parameters":{"layout":"snk"},"outputs":[{"name":"passes","datatype":"FP32","shape":[2,2,2],"data":[1,2,3,4,5,6,7,8]}]}`), "", passes(2, 1, 2, 5, 6, 3, 4, 7, 8)},
		"among others":     {answer(oneLabel + "," + onePass), ":passes", passes(1, 0.25, 0.75, 1, 0)},
		"text":             {answer(onePass + "," + oneLabel), ":label", &Array{Shape: []int{1}, Text: []string{`a "b" ä]`}, InputsFirst: true}},
		"float64":          {answer(`{"name":"passes","datatype":"FP64","shape":[1,1,1],"data":[1e-300]}`), "", &Array{Shape: []int{1, 1, 1}, Float64: []float64{1e-300}, InputsFirst: true}},
		"integers":         {answer(`{"name":"y","datatype":"UINT8","shape":[2],"data":[7, 0]}`), ":y", &Array{Shape: []int{2}, Int64: []int64{7, 0}, InputsFirst: true}},
		"truth":            {answer(`{"name":"y","datatype":"BOOL","shape":[2],"data":[true,false]}`), ":y", &Array{Shape: []int{2}, Int64: []int64{1, 0}, InputsFirst: true}},
		"of the request, after it": {
			logLine("response", "1", outputs(onePass)) + logLine("request", "2", `{"inputs":[`+twoLabels+`]}`) + logLine("request", "1", `{"inputs":[`+oneLabel+`]}`) +
				logLine("response", "2", outputs(twoInputs)), ":label",
			&Array{Shape: []int{3}, Text: []string{`a "b" ä]`, "b", "c"}, InputsFirst: true},
		},
		"unanswered":     {logLine("request", "9", `{"inputs":[]}`) + answer(onePass), "", passes(1, 0.25, 0.75, 1, 0)},
		"requests alone": {logLine("request", "1", `{"inputs":[`+onePass+`]}`), "", passes(1, 0.25, 0.75, 1, 0)},
		"other events":   {`{"type":"org.example.other","data":7}` + "\n" + answer(onePass), "", passes(1, 0.25, 0.75, 1, 0)},
		"as text":        {logLine("response", "1", `"{\"outputs\":[{\"name\":\"passes\",\"datatype\":\"FP32\",\"shape\":[1,2,2],\"data\":[0.25,0.75,1,0]}]}"`), "", passes(1, 0.25, 0.75, 1, 0)},
		"in base64": {strings.Replace(logLine("response", "1", `"`+base64.StdEncoding.EncodeToString([]byte(outputs(onePass)))+`"`), `"data":`, `"data_base64":`, 1),
			"", passes(1, 0.25, 0.75, 1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadFile(writeEvents(t, c.text) + c.member)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want - and got +:\n%s", diff)
			}
		})
	}
}

// TestEventsLayout checks that the layout of events is their own, whatever is asked for.
func TestEventsLayout(t *testing.T) {
	text := logLine("response", "1", outputs(`{"name":"passes","datatype":"FP32","shape":[1,3,2],"data":[1,2,3,4,5,6]}`))
	p, err := ReadPasses(writeEvents(t, text), Options{Layout: SNK})
	if err != nil {
		t.Fatal(err)
	}
	if p.N != 1 || p.S != 3 || p.K != 2 || strings.Contains(p.Note(), "--layout") {
		t.Errorf("%d inputs, %d passes, %d classes: %s", p.N, p.S, p.K, p.Note())
	}
}

func TestReadEventsErrors(t *testing.T) {
	answer := func(tensor string) string { return logLine("response", "1", outputs(tensor)) }
	tensor := func(datatype, shape, data string) string {
		return answer(`{"name":"passes","datatype":"` + datatype + `","shape":` + shape + `,"data":` + data + `}`)
	}
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":           {answer(onePass) + "{oops\n", ":2:2: invalid character 'o'"},
		"NaN":               {tensor("FP32", "[1,1,1]", "[NaN]"), ":1:306: invalid character 'N'"},
		"no event":          {`{"model_name":"m"}`, ":1:1: no type: expected a CloudEvent"},
		"no id":             {logLine("response", "", outputs(onePass)), "no id"},
		"no events":         {`{"type":"other"}`, "no event of type org.kubeflow.serving.inference.response"},
		"twice":             {answer(onePass) + answer(onePass), `:2:1: event "1" was in line 1`},
		"no data":           {strings.Replace(answer(onePass), `"data":{"model`, `"body":{"model`, 1), "no data"},
		"version 1":         {logLine("response", "1", `{"predictions":[[1]]}`), `no tensor "passes": found none`},
		"a list":            {logLine("response", "1", `[1]`), ":1:205: the data: json: cannot unmarshal array"},
		"base64":            {`{"type":"` + responseEvent + `","id":"1","data_base64":"?"}`, ":1:74: data_base64: illegal base64"},
		"no such tensor":    {logLine("response", "7", outputs(oneLabel)), `:1:1: event "7" of service "heart": no tensor "passes": found label`},
		"tensor twice":      {answer(onePass + "," + onePass), `tensor "passes" stands twice`},
		"datatype":          {tensor("FP8", "[1]", "[1]"), `:1:247: tensor "passes": datatype "FP8"`},
		"type of a field":   {tensor("FP32", `["a"]`, "[1]"), "cannot unmarshal string"},
		"negative":          {tensor("FP32", "[-1]", "[1]"), "is negative"},
		"no axes":           {tensor("FP32", "[]", "1"), "the shape has 0 axes"},
		"few values":        {tensor("FP32", "[1,1,4]", "[1,2,3]"), "a list of 3 after value 3: expected 4"},
		"many values":       {tensor("FP32", "[1,1,2]", "[1,2,3]"), "a list goes on after value 1"},
		"claims much":       {tensor("FP32", "[1000000000,1000,1000]", "[1]"), "needs 1000000000000000 values: found fewer"},
		"nested otherwise":  {tensor("FP32", "[1,2,2]", "[[[1,2,3],[4]]]"), "a list goes on after value 1"},
		"not deep enough":   {tensor("FP32", "[1,2,2]", "[[1,2],[3,4]]"), "value 0 is no list"},
		"too deep":          {tensor("FP32", "[1,2]", "[[[1],2]]"), "value 0 is : expected one"},
		"not a number":      {tensor("FP32", "[1,2]", "[1,null]"), "value 1 is null"},
		"out of range":      {tensor("FP32", "[1,2]", "[1,1e99]"), "value 1 is 1e99"},
		"fraction":          {tensor("INT64", "[1]", "[1.5]"), "value 0 is 1.5"},
		"number for a text": {tensor("BYTES", "[1]", "[1]"), "value 0 is 1"},
		"no list":           {tensor("FP32", "[1]", "1"), "the data are no list"},
		"binary":            {answer(`{"name":"passes","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}`), "the values are binary"},
		"layout":            {answer(`{"name":"passes","datatype":"FP32","shape":[1],"parameters":{"layout":"KNS"},"data":[1]}`), `layout "KNS"`},
		"other passes":      {answer(onePass) + logLine("response", "2", outputs(strings.ReplaceAll(onePass, "1,2,2", "2,1,2"))), `:2:1: event "2" of service "heart": tensor "passes" has shape (1, 2)`},
		"another type":      {answer(onePass) + logLine("response", "2", outputs(strings.ReplaceAll(onePass, "FP32", "FP64"))), "or another type than before"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeEvents(t, c.text)
			_, err := ReadFile(path)
			var format *FormatError
			if !errors.As(err, &format) || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected one with %q", err, c.want)
			}
		})
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add(logLine("response", "1", outputs(onePass, oneLabel))+logLine("request", "1", `{"inputs":[`+twoLabels+`]}`), "label")
	f.Add(logLine("response", "1", outputs(twoInputs))+logLine("response", "2", outputs(onePass)), "")
	f.Add(logLine("request", "1", `"{\"inputs\":[]}"`), "passes")
	f.Add(`{"type":"`+responseEvent+`","id":"1","data_base64":"e30="}`, "passes")
	f.Add(logLine("response", "1", outputs(strings.Replace(twoInputs, "{", `{"parameters":{"layout":"SNK"},`, 1))), "")
	f.Fuzz(func(t *testing.T, text, tensor string) {
		a, err := readEvents("fuzz", strings.NewReader(text), tensor)
		var format *FormatError
		switch {
		case err == nil && a.check() != nil:
			t.Error(a.check())
		case err == nil && len(a.Float32)+len(a.Float64)+len(a.Int64)+len(a.Text) > len(text):
			t.Errorf("%d bytes give %v", len(text), a.Shape)
		case err != nil && (!errors.As(err, &format) || format.Line > 0 && format.Column < 1):
			t.Errorf("%T: %v", err, err)
		}
	})
}
