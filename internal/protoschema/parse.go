// Package protoschema reads descriptors of protocol buffers that users have given, and compares them. It is for the schema bundles of Cloud Bigtable's
// API: the paper does not describe them.
//
// Descriptors are hostile: the names in them grow with each scope that they are in, so that a few kilobytes could need gigabytes of memory. Parse bounds
// names and depth before it builds any.
package protoschema

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	// depthMax is how deep messages of the descriptors may be nested.
	depthMax = 64
	// ScopeBytesMax bounds the full name of a message or an enum, and so how much longer names become than they are in the descriptors.
	ScopeBytesMax = 512
)

// Parse decodes a google.protobuf.FileDescriptorSet. Errors: it is none, or has no file, or not all that its files import; names or messages within messages
// that exceed ScopeBytesMax or depthMax.
func Parse(descriptors []byte) (*descriptorpb.FileDescriptorSet, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if err := (proto.UnmarshalOptions{RecursionLimit: depthMax}).Unmarshal(descriptors, set); err != nil {
		return nil, err
	}
	if len(set.File) == 0 {
		return nil, errors.New("it has no file")
	}
	for _, f := range set.File {
		err := checkScope(f.GetPackage(), len(f.GetPackage()))
		if err == nil {
			err = checkScopes(len(f.GetPackage()), f.MessageType, f.EnumType)
		}
		for _, s := range f.Service {
			err = errors.Join(err, checkScope(s.GetName(), len(f.GetPackage())+1+len(s.GetName())))
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := protodesc.NewFiles(set); err != nil {
		return nil, err
	}
	return set, nil
}

// checkScopes checks the names of messages and enums in a scope whose name has so many bytes.
func checkScopes(scope int, messages []*descriptorpb.DescriptorProto, enums []*descriptorpb.EnumDescriptorProto) error {
	for _, m := range messages {
		n := scope + 1 + len(m.GetName())
		err := checkScope(m.GetName(), n)
		if err == nil {
			err = checkScopes(n, m.NestedType, m.EnumType)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range enums {
		if err := checkScope(e.GetName(), scope+1+len(e.GetName())); err != nil {
			return err
		}
	}
	return nil
}

func checkScope(name string, n int) error {
	if n > ScopeBytesMax {
		return fmt.Errorf("the full name of %.40q has %d bytes, more than %d", name, n, ScopeBytesMax)
	}
	return nil
}
