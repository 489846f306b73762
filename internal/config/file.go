package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// BeforeReset removes from the environment what cannot be used. kong calls it before it reads the
// environment.
func (c *Config) BeforeReset() error {
	c.Unusable = append(c.Unusable, CleanEnvironment()...)
	return nil
}

// BeforeResolve reads the file that flags or environment name, and lets its settings apply where
// neither of them sets a value. kong calls it when flags and environment are known.
func (c *Config) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	flags := trace.Node().Flags
	at := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == "config" })
	path, ok := ctx.FlagValue(flags[at]).(string)
	if !ok || path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	settings, err := read(path, data, flags)
	if err != nil {
		return err
	}
	c.origin = map[string]strictyaml.Fault{}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		s, ok := settings[flag.Name]
		if !ok || isSetByEnvironment(flag) {
			return nil, nil
		}
		c.origin[flag.Name] = s.place
		return s.value, nil
	}))
	return nil
}

// setting is a value of the file, in the form that kong takes, and its place.
type setting struct {
	value any              // a string, or []any of strings
	place strictyaml.Fault // without a reason
}

// read decodes the file and reports every fault at its place.
func read(path string, data []byte, flags []*kong.Flag) (map[string]setting, error) {
	var faults strictyaml.Faults
	root, ok := strictyaml.Parse(path, data, &faults)
	if !ok {
		return nil, faults
	}
	var names []string
	for _, f := range flags {
		if f.Name != "config" && f.Name != "help" {
			names = append(names, f.Name)
		}
	}
	fields, _ := root.Mapping(names...)
	settings := map[string]setting{}
	for _, flag := range flags {
		v, given := fields.Get(flag.Name)
		if !given {
			continue
		}
		if value, ok := decode(v, flag); ok {
			settings[flag.Name] = setting{value, strictyaml.Fault{File: path, Line: v.Line(), Col: v.Col()}}
		}
	}
	return settings, faults.Err()
}

// decode reads one setting and tries it on the flag, so that a malformed value is reported at its
// place.
func decode(v strictyaml.Value, flag *kong.Flag) (any, bool) {
	var value any
	if text, isText := v.Silent().Text(); flag.IsSlice() && isText {
		value = []any{text} // a list of one
	} else if flag.IsSlice() {
		items, ok := v.List()
		texts := make([]any, len(items))
		for i, item := range items {
			if texts[i], ok = item.Text(); !ok {
				break
			}
		}
		if !ok {
			return nil, false
		}
		value = texts
	} else {
		var ok bool
		if flag.Enum != "" {
			value, ok = v.Enum(flag.EnumSlice()...)
		} else {
			value, ok = v.Text()
		}
		if !ok {
			return nil, false
		}
	}
	target := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(value, kong.FlagValueToken), target); err != nil {
		ask := ""
		if text, isText := value.(string); isText && flag.Target.Kind() == reflect.Float64 {
			ask = strictyaml.DecimalComma(text)
		}
		v.Fault("%s%s", strings.TrimPrefix(err.Error(), "--"+flag.Name+": "), ask)
		return nil, false
	}
	return value, true
}

func isSetByEnvironment(flag *kong.Flag) bool {
	return slices.ContainsFunc(flag.Envs, func(name string) bool {
		_, set := os.LookupEnv(name)
		return set
	})
}
