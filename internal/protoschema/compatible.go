package protoschema

import (
	"fmt"

	"google.golang.org/protobuf/types/descriptorpb"
)

// A fileSet has the messages and enums of a google.protobuf.FileDescriptorSet by their full names.
type fileSet struct {
	messages map[string]*descriptorpb.DescriptorProto
	enums    map[string]*descriptorpb.EnumDescriptorProto
}

func newFileSet(files *descriptorpb.FileDescriptorSet) *fileSet {
	s := &fileSet{map[string]*descriptorpb.DescriptorProto{}, map[string]*descriptorpb.EnumDescriptorProto{}}
	for _, f := range files.File {
		s.add("."+f.GetPackage(), f.MessageType, f.EnumType)
	}
	return s
}

// add adds the types in a scope, and those within them.
func (s *fileSet) add(scope string, messages []*descriptorpb.DescriptorProto, enums []*descriptorpb.EnumDescriptorProto) {
	if scope != "." {
		scope += "."
	}
	for _, m := range messages {
		s.messages[scope+m.GetName()] = m
		s.add(scope+m.GetName(), m.NestedType, m.EnumType)
	}
	for _, e := range enums {
		s.enums[scope+e.GetName()] = e
	}
}

// Incompatible returns why values of the old messages may not be read by the new ones, or vice versa; "" if they can: no message, field or value of an enum
// was removed, and no field has another type. Fields and names may be added, and fields renamed, as the binary encoding does not have their names.
func Incompatible(old, changed *descriptorpb.FileDescriptorSet) string {
	was, now := newFileSet(old), newFileSet(changed)
	for name, m := range was.messages {
		if other := now.messages[name]; other == nil {
			return fmt.Sprintf("message %.200s is missing", name[1:])
		} else if what := differs(m, other); what != "" {
			return fmt.Sprintf("message %.200s: %s", name[1:], what)
		}
	}
	for name, e := range was.enums {
		other := now.enums[name]
		if other == nil {
			return fmt.Sprintf("enum %.200s is missing", name[1:])
		}
		kept := map[int32]bool{}
		for _, v := range other.Value {
			kept[v.GetNumber()] = true
		}
		for _, v := range e.Value {
			if !kept[v.GetNumber()] {
				return fmt.Sprintf("enum %.200s: the value %.200s = %d is missing", name[1:], v.GetName(), v.GetNumber())
			}
		}
	}
	return ""
}

// differs returns how the fields of a message differ from those that it had; "" if values of both can be read by both.
func differs(was, now *descriptorpb.DescriptorProto) string {
	fields := map[int32]*descriptorpb.FieldDescriptorProto{}
	for _, f := range now.Field {
		fields[f.GetNumber()] = f
	}
	for _, f := range was.Field {
		other := fields[f.GetNumber()]
		switch {
		case other == nil:
			return fmt.Sprintf("the field %.200s = %d is missing", f.GetName(), f.GetNumber())
		case other.GetType() != f.GetType() || other.GetTypeName() != f.GetTypeName() || other.GetLabel() != f.GetLabel():
			return fmt.Sprintf("the field %.200s = %d has another type", f.GetName(), f.GetNumber())
		}
		delete(fields, f.GetNumber())
	}
	for _, f := range fields { // only the added ones are left
		if f.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REQUIRED {
			return fmt.Sprintf("the added field %.200s = %d is required", f.GetName(), f.GetNumber())
		}
	}
	return ""
}
