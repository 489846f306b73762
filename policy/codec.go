package policy

import (
	"fmt"
	"reflect"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// noClass is the position of a class that is not given.
const noClass = -1

// readFields reads the keys of a mapping into a struct. It returns false if the value is no mapping.
func (b *builder) readFields(v strictyaml.Value, into reflect.Value, fields []field) bool {
	before := len(*b.faults)
	m, ok := v.Mapping(namesOf(fields)...)
	if len(*b.faults) > before {
		b.faulty[v.Path()] = true
	}
	if !ok {
		return false
	}
	for i := range fields {
		f, before := &fields[i], len(*b.faults)
		value, given := m.Get(f.name)
		switch {
		case given:
			b.values[value.Path()] = value
			b.read(f, value, into)
		case f.required:
			m.Need(f.name, f.words())
			b.faulty[m.PathTo(f.name)] = true
		case f.kind == classValue:
			f.value(into, true).SetInt(noClass)
		}
		if len(*b.faults) > before && f.sub == nil { // others see to their keys themselves
			b.faulty[m.PathTo(f.name)] = true
		}
	}
	return true
}

// read copies the value of a key into a struct, or reports its faults.
func (b *builder) read(f *field, v strictyaml.Value, in reflect.Value) {
	into := f.value(in, true)
	if f.flag != "" {
		in.FieldByName(f.flag).SetBool(true)
	}
	switch f.kind {
	case textValue:
		if s, ok := v.Match(f.form.words, f.form.accepts); ok {
			into.SetString(s)
		}
	case choiceValue:
		if s, ok := v.Enum(f.choices...); ok {
			into.SetString(s)
		}
	case classValue:
		into.SetInt(noClass)
		if s, ok := v.Match(classForm.words, classForm.accepts); ok {
			if k, known := b.classOf(v.Path(), s); known {
				into.SetInt(int64(k))
			}
		}
	case wholeValue:
		if n, ok := v.Int(int(f.within.Least), f.most()); ok {
			into.Set(reflect.ValueOf(n).Convert(into.Type()))
		}
	case numberValue:
		if x, ok := v.Float(f.within); ok {
			into.SetFloat(x)
		}
	case boolValue:
		if x, ok := v.Bool(); ok {
			into.SetBool(x)
		}
	case periodValue:
		if s, ok := v.Text(); ok {
			p, valid := parsePeriod(s)
			if !valid {
				v.Fault("expected %s, found %s", f.words(), strictyaml.Quote(s))
			}
			into.SetInt(int64(p))
		}
	case alarmValue:
		if s, ok := v.Text(); ok {
			name, valid := parseAlarmName(s)
			if !valid {
				v.Fault("expected %s, found %s", f.words(), strictyaml.Quote(s))
			}
			into.Set(reflect.ValueOf(name))
		}
	case mappingValue:
		b.readFields(v, into, f.sub)
	default:
		b.readList(f, v, into)
	}
}

// readList reads a list, and remembers the places of its entries.
func (b *builder) readList(f *field, v strictyaml.Value, into reflect.Value) {
	items, ok := v.List()
	for _, item := range items {
		b.values[item.Path()] = item
	}
	if !ok {
		b.faulty[v.Path()] = true
		return
	}
	if f.kind == listValue && f.required && len(items) == 0 {
		b.fault(v.Path(), "empty, expected at least one entry")
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	if f.kind == namesValue {
		b.readNames(f, v.Path(), items, into)
		return
	}
	for i, item := range items {
		if f.kind == listValue {
			b.readFields(item, into.Index(i), f.sub)
		} else if x, ok := item.Float(f.within); ok {
			into.Index(i).SetFloat(x)
		} else {
			return
		}
	}
	if f.kind == quantileValue {
		b.checkQuantiles(f, v.Path(), into)
	}
}

// readNames reads a list of names, each once, as texts or as the positions of classes. A name with a
// fault stays empty, or has no position.
func (b *builder) readNames(f *field, path string, items []strictyaml.Value, into reflect.Value) {
	if n := len(items); (n > 0 || f.required) && !f.within.Contains(float64(n)) {
		b.fault(path, "expected %v to %v names, found %d", f.within.Least, f.within.Most, n)
	}
	first := make(map[string]string, len(items))
	for i, item := range items {
		name, ok := item.Match(classForm.words, classForm.accepts)
		if at, twice := first[name]; ok && twice {
			b.fault(item.Path(), "%s is given twice, first at %s", strictyaml.Quote(name), b.where(at))
			ok = false
		} else if ok {
			first[name] = item.Path()
		}
		if entry := into.Index(i); entry.Kind() == reflect.Int {
			entry.SetInt(noClass)
			if ok {
				var k int
				if k, ok = b.classOf(item.Path(), name); ok {
					entry.SetInt(int64(k))
				}
			}
		} else if ok {
			entry.SetString(name)
		}
		if !ok {
			b.faulty[path] = true
		}
	}
}

// checkQuantiles wants as many quantiles as there are levels, in ascending order.
func (b *builder) checkQuantiles(f *field, path string, list reflect.Value) {
	if n := list.Len(); n != Levels {
		b.fault(path, "expected %s, found %d", f.words(), n)
		return
	}
	for i := range list.Len() {
		switch x, at := list.Index(i).Float(), fmt.Sprintf("%s[%d]", path, i); {
		case !f.within.Contains(x):
			b.fault(at, "expected %s, found %v", f.within, x)
		case i > 0 && x < list.Index(i-1).Float():
			b.fault(at, "expected at least %v, the number before, found %v", list.Index(i-1), x)
		}
	}
}

// fillDefaults fills in the defaults that tags state.
func fillDefaults(in reflect.Value, fields []field) {
	for i := range fields {
		f := &fields[i]
		value := f.value(in, false)
		switch {
		case !value.IsValid():
		case f.kind == mappingValue:
			fillDefaults(value, f.sub)
		case f.standard.IsValid() && value.IsZero():
			value.Set(f.standard)
		}
	}
}

// deepCopy returns a copy that shares no memory with a value.
func deepCopy(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(deepCopy(v.Elem()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(deepCopy(v.Index(i)))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			c.Field(i).Set(deepCopy(v.Field(i)))
		}
	}
	return c
}
