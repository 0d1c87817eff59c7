package protoschema

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// file returns the descriptor of a file with a message "m" that has the fields.
func file(fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.FileDescriptorProto {
	return &descriptorpb.FileDescriptorProto{Name: proto.String("f.proto"), Package: proto.String("p"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("m"), Field: fields}}}
}

func field(name string, number int32, of descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &of, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
}

func encoded(t *testing.T, files ...*descriptorpb.FileDescriptorProto) []byte {
	t.Helper()
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: files})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParse: descriptors are accepted if they have all that they refer to.
func TestParse(t *testing.T) {
	text := descriptorpb.FieldDescriptorProto_TYPE_STRING
	user := file()
	user.Name, user.Package, user.Dependency = proto.String("u.proto"), proto.String("u"), []string{"f.proto"}
	twice := file()
	twice.MessageType = append(twice.MessageType, twice.MessageType[0])
	for what, x := range map[string]struct {
		descriptors []byte
		err         string
	}{
		"a message":           {encoded(t, file(field("a", 1, text))), ""},
		"with its imports":    {encoded(t, user, file()), ""},
		"nothing":             {nil, "no file"},
		"without its imports": {encoded(t, user), "f.proto"},
		"no descriptors":      {[]byte("no descriptors"), "cannot parse"},
		"a name twice":        {encoded(t, twice), "already declared"},
		"a name without end":  {encoded(t, &descriptorpb.FileDescriptorProto{Name: proto.String("f"), Package: proto.String(strings.Repeat("a.", 300) + "a")}), "512"},
	} {
		if _, err := Parse(x.descriptors); (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: %v, want %q", what, err, x.err)
		}
	}
}

// TestParseAmplification: descriptors of a few kilobytes need no more memory than a multiple of their size, however deep their messages are, and however
// long the names that these inherit.
func TestParseAmplification(t *testing.T) {
	deep := &descriptorpb.DescriptorProto{Name: proto.String("m")}
	for range 5000 {
		deep = &descriptorpb.DescriptorProto{Name: proto.String("m"), NestedType: []*descriptorpb.DescriptorProto{deep}}
	}
	wide := &descriptorpb.DescriptorProto{Name: proto.String(strings.Repeat("m", 90<<10))}
	widest := &descriptorpb.DescriptorProto{Name: proto.String(strings.Repeat("m", ScopeBytesMax/2))}
	for i := range 5000 {
		child := &descriptorpb.DescriptorProto{Name: proto.String("m" + string(rune('a'+i%26)) + strings.Repeat("x", i/26))}
		wide.NestedType, widest.NestedType = append(wide.NestedType, child), append(widest.NestedType, child)
	}
	for what, m := range map[string]*descriptorpb.DescriptorProto{"deep": deep, "wide": wide, "widest": widest} {
		f := file()
		f.MessageType = []*descriptorpb.DescriptorProto{m}
		b := encoded(t, f)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(b)
		runtime.ReadMemStats(&after)
		if err == nil && what != "widest" {
			t.Errorf("%s: accepted", what)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%s: %d MiB for %d KiB", what, n>>20, len(b)>>10)
		}
	}
}

// TestIncompatible: values of both descriptors can be read by both, or the reason is named.
func TestIncompatible(t *testing.T) {
	text, bytes := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES
	required := field("b", 2, text)
	required.Label = descriptorpb.FieldDescriptorProto_LABEL_REQUIRED.Enum()
	repeated := field("a", 1, text)
	repeated.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	enum := func(numbers ...int32) *descriptorpb.FileDescriptorProto {
		f := file()
		e := &descriptorpb.EnumDescriptorProto{Name: proto.String("e")}
		for _, n := range numbers {
			e.Value = append(e.Value, &descriptorpb.EnumValueDescriptorProto{Name: proto.String("v" + string(rune('0'+n))), Number: proto.Int32(n)})
		}
		f.MessageType[0].EnumType = append(f.MessageType[0].EnumType, e)
		return f
	}
	other := file()
	other.MessageType[0].Name = proto.String("n")
	for what, x := range map[string]struct {
		was, now *descriptorpb.FileDescriptorProto
		want     string
	}{
		"the same":            {file(field("a", 1, text)), file(field("a", 1, text)), ""},
		"an added field":      {file(field("a", 1, text)), file(field("a", 1, text), field("b", 2, text)), ""},
		"another name":        {file(field("a", 1, text)), file(field("b", 1, text)), ""},
		"a removed field":     {file(field("a", 1, text)), file(), "message p.m: the field a = 1 is missing"},
		"another type":        {file(field("a", 1, text)), file(field("a", 1, bytes)), "message p.m: the field a = 1 has another type"},
		"a list":              {file(field("a", 1, text)), file(repeated), "message p.m: the field a = 1 has another type"},
		"required":            {file(field("a", 1, text)), file(field("a", 1, text), required), "message p.m: the added field b = 2 is required"},
		"a removed message":   {file(), other, "message p.m is missing"},
		"an added value":      {enum(0), enum(0, 1), ""},
		"a removed value":     {enum(0, 1), enum(0), "enum p.m.e: the value v1 = 1 is missing"},
		"a removed enum":      {enum(0), file(), "enum p.m.e is missing"},
		"another file's name": {file(), func() *descriptorpb.FileDescriptorProto { f := file(); f.Name = proto.String("g.proto"); return f }(), ""},
	} {
		sets := [2]*descriptorpb.FileDescriptorSet{{File: []*descriptorpb.FileDescriptorProto{x.was}}, {File: []*descriptorpb.FileDescriptorProto{x.now}}}
		if got := Incompatible(sets[0], sets[1]); got != x.want {
			t.Errorf("%s: %q, want %q", what, got, x.want)
		}
	}
}
