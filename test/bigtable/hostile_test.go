package bigtable

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/node"
)

// alive fails the test unless the node answers a read.
func alive(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := bigtablepb.NewBigtableClient(dial(t, n)).PingAndWarm(ctx, &bigtablepb.PingAndWarmRequest{Name: "projects/p/instances/i"})
	if err != nil {
		t.Fatalf("the node does not answer: %v", err)
	}
}

// TestGarbage: bytes that are not HTTP/2, or not frames of it, harm nothing.
func TestGarbage(t *testing.T) {
	n := startNode(t)
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for i := range 200 {
		c, err := net.Dial("tcp", n.BigtableAddr())
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		if i%2 == 0 {
			b = append(b, preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"...)
		}
		for range r.IntN(2000) {
			b = append(b, byte(r.Uint32()))
		}
		_, _ = c.Write(b) // the node may have closed it
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	alive(t, n)
}

// TestHeaders: a call with headers over the limit fails, and the next one does not.
func TestHeaders(t *testing.T) {
	n := startNode(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("x", 1<<20))
	_, err := bigtablepb.NewBigtableClient(dial(t, n)).PingAndWarm(ctx, &bigtablepb.PingAndWarmRequest{Name: "projects/p/instances/i"})
	if err == nil {
		t.Error("headers of 1 MiB were accepted")
	}
	alive(t, n)
}

// methods returns all methods of the API's services.
func methods(t *testing.T) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	for _, name := range []protoreflect.FullName{"google.bigtable.v2.Bigtable", "google.bigtable.admin.v2.BigtableTableAdmin",
		"google.bigtable.admin.v2.BigtableInstanceAdmin", "google.longrunning.Operations"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		service := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range service.Len() {
			all = append(all, service.Get(i))
		}
	}
	return all
}

// call calls a method with one message, and returns the error that ended the call.
func call(ctx context.Context, c *grpc.ClientConn, m protoreflect.MethodDescriptor, req proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: true}
	stream, err := c.NewStream(ctx, desc, "/"+string(m.Parent().FullName())+"/"+string(m.Name()))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req); err != nil && err != io.EOF {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if err := stream.RecvMsg(dynamicpb.NewMessage(m.Output())); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// fill sets the fields of a message to hostile values: names that are right or wrong, extreme numbers, deep trees.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == "app_profile_id" && r.IntN(5) > 0 { // most names are not found
			continue
		}
		if r.IntN(3) == 0 || depth == 0 && f.Message() != nil || f.IsMap() {
			continue
		}
		one := func() protoreflect.Value {
			if f.Message() == nil {
				return scalar(r, f)
			}
			v := m.NewField(f)
			if f.IsList() {
				v = v.List().NewElement()
			}
			fill(r, v.Message(), depth-1)
			return v
		}
		if f.IsList() {
			list := m.NewField(f).List()
			for range r.IntN(4) {
				list.Append(one())
			}
			m.Set(f, protoreflect.ValueOfList(list))
			continue
		}
		m.Set(f, one())
	}
}

func scalar(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	texts := []string{"", "t", "f", "x", "projects/p/instances/i", "projects/p/instances/i/tables/t", "projects/p/instances/i/tables/\x00", "..", "(", strings.Repeat("a", 70_000), ".*"}
	numbers := []int64{0, 1, -1, -2, 1000, 1 << 31, -1 << 31, 1<<63 - 1, -1 << 63}
	n := numbers[r.IntN(len(numbers))]
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[r.IntN(len(texts))]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) / 3)
	}
	panic("unknown kind " + f.Kind().String())
}

// TestEveryMethod calls all methods of all services with empty and with random messages. None fails by a mistake of the node, and what is
// not supported is answered with a sentence.
func TestEveryMethod(t *testing.T) {
	n := startNode(t)
	c := dial(t, n)
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	admin := adminpb.NewBigtableTableAdminClient(c)
	ensure := func() { // a random request may have dropped it
		_, err := admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: "t",
			Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"f": {}}}})
		if err != nil && status.Code(err) != codes.AlreadyExists {
			t.Fatal(err)
		}
	}
	for _, m := range methods(t) {
		for i := range 20 {
			ensure()
			req := dynamicpb.NewMessage(m.Input())
			if i > 0 {
				fill(r, req, 4)
			}
			err := call(t.Context(), c, m, req)
			switch s := status.Convert(err); {
			case s.Code() == codes.Unimplemented && !strings.HasSuffix(s.Message(), "."):
				t.Errorf("%s: %v, want a sentence", m.FullName(), err)
			case s.Code() == codes.Internal, s.Code() == codes.Unknown, s.Code() == codes.Unavailable, s.Code() == codes.DeadlineExceeded:
				t.Errorf("%s: %v for %.1000v", m.FullName(), err, req)
			}
		}
	}
	alive(t, n)
}

// TestUnknownMethod: a method that does not exist is answered with a sentence.
func TestUnknownMethod(t *testing.T) {
	err := dial(t, startNode(t)).Invoke(t.Context(), "/google.bigtable.v2.Bigtable/Absent", &bigtablepb.PingAndWarmRequest{}, &bigtablepb.PingAndWarmResponse{})
	if s := status.Convert(err); s.Code() != codes.Unimplemented || !strings.HasSuffix(s.Message(), ".") {
		t.Errorf("%v, want UNIMPLEMENTED with a sentence", err)
	}
}
