package daemon

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/ckd-project/ckd/policy"
)

// logChanges logs what a reload has changed, one line for each model.
func logChanges(log *zap.Logger, before, now []*policy.Policy) {
	was := map[string]*policy.Policy{}
	for _, p := range before {
		was[p.Name] = p
	}
	for _, p := range now {
		old := was[p.Name]
		delete(was, p.Name)
		if old == nil {
			log.Info("policy added", zap.String("model", p.Name), zap.String("version", p.Version), zap.String("hash", p.Hash))
		} else if changes := changesOf(old, p); len(changes) > 0 {
			log.Info("policy changed", zap.String("model", p.Name), zap.Strings("changes", changes))
		}
	}
	for _, p := range before {
		if was[p.Name] != nil {
			log.Info("policy removed", zap.String("model", p.Name), zap.String("version", p.Version), zap.String("hash", p.Hash))
		}
	}
}

// mostChanges bounds the changes logged for one model: a calibration has hundreds of numbers.
const mostChanges = 20

// changesOf returns how two policies of a model differ, by the paths of the fields:
// fallback.threshold 0.02 -> 0.001.
func changesOf(before, now *policy.Policy) (changes []string) {
	was, order := fieldsOf(before)
	fields, added := fieldsOf(now)
	for _, path := range added {
		if _, known := was[path]; !known {
			order = append(order, path)
		}
	}
	text := func(values map[string]string, path string) string {
		if value, given := values[path]; given {
			return shorten(value)
		}
		return "none"
	}
	for _, path := range order {
		if was[path] != fields[path] {
			changes = append(changes, fmt.Sprintf("%s %s -> %s", path, text(was, path), text(fields, path)))
		}
	}
	if left := len(changes) - mostChanges; left > 0 {
		changes = append(changes[:mostChanges], fmt.Sprintf("and %d more", left))
	}
	return changes
}

// fieldsOf returns the fields of a policy as its file would hold them, by path, and the paths in
// their order.
func fieldsOf(p *policy.Policy) (fields map[string]string, order []string) {
	var file struct{ Models []yaml.Node }
	fields = map[string]string{}
	if yaml.Unmarshal(p.Marshal(), &file) != nil || len(file.Models) != 1 { // never: a policy can read what it writes
		return fields, nil
	}
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
			}
			return
		}
		fields[path] = textOf(n)
		order = append(order, path)
	}
	walk("", &file.Models[0])
	return fields, order
}

// textOf returns a value on one line.
func textOf(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, textOf(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		for pair := range slices.Chunk(n.Content, 2) {
			parts = append(parts, pair[0].Value+": "+textOf(pair[1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return n.Value
}

// shorten cuts a long value, most likely a list.
func shorten(value string) string {
	const most = 80
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "..."
}
