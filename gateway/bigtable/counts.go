package bigtable

import (
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The virtual RPC that reads a row; the other one has the name of MutateRow.
const (
	virtualRead   = "ReadRow"
	virtualMutate = "MutateRow"
)

// countedMethods are the names of the methods of the data API, and of the virtual RPCs in sessions. methodIndex has their places by full name.
var countedMethods, methodIndex = func() (all []string, index map[string]int) {
	index = map[string]int{}
	add := func(name string) {
		index["/"+bigtablepb.Bigtable_ServiceDesc.ServiceName+"/"+name] = len(all)
		all = append(all, name)
	}
	for _, m := range bigtablepb.Bigtable_ServiceDesc.Methods {
		add(m.MethodName)
	}
	for _, m := range bigtablepb.Bigtable_ServiceDesc.Streams {
		add(m.StreamName)
	}
	index[virtualMutate] = index["/"+bigtablepb.Bigtable_ServiceDesc.ServiceName+"/"+virtualMutate]
	index[virtualRead] = len(all)
	return append(all, virtualRead), index
}()

// codesMax is the number of codes.
const codesMax = int(codes.Unauthenticated) + 1

// counts counts the requests of an app profile.
type counts struct {
	methods []methodCount          // as countedMethods
	errors  [codesMax]atomic.Int64 // by code
}

type methodCount struct{ requests, nanos atomic.Int64 }

func newCounts() *counts { return &counts{methods: make([]methodCount, len(countedMethods))} }

// add counts a request, by the place of its method in countedMethods.
func (c *counts) add(method int, took time.Duration, err error) {
	m := &c.methods[method]
	m.requests.Add(1)
	m.nanos.Add(int64(took))
	if err != nil {
		c.errors[min(int(status.Code(err)), codesMax-1)].Add(1)
	}
}

// count counts a virtual RPC that has ended, for the app profile of its session.
func (x *session) count(req *bigtablepb.TableRequest, began time.Time, err error) {
	h, ok := x.stream.Context().Value(headedKey{}).(*headed)
	if !ok {
		return
	}
	switch req.GetPayload().(type) {
	case *bigtablepb.TableRequest_ReadRow:
		h.counts.add(methodIndex[virtualRead], time.Since(began), err)
	case *bigtablepb.TableRequest_MutateRow:
		h.counts.add(methodIndex[virtualMutate], time.Since(began), err)
	}
}

// lasts reports whether the client determines how long calls of a method last: streams of sessions, and of changes.
func lasts(method string) bool {
	return strings.HasPrefix(method, "Open") || method == "ReadChangeStream"
}

// NoProfile is the label for requests without an app profile that exists.
const NoProfile = "(none)"

// RequestCounts are the requests of an app profile since the node started, or the profile was created.
type RequestCounts struct {
	Profile string
	Methods []MethodCounts
	Errors  map[string]int64 // by code; none is 0
}

// MethodCounts are the requests of a method. Virtual RPCs in sessions count as ReadRow and MutateRow.
type MethodCounts struct {
	Method   string
	Requests int64
	Time     time.Duration // of all of them; 0 for streams that the client ends
}

// Requests returns the requests by app profile, without methods that were never called.
func (s *Service) Requests() []RequestCounts {
	all := []RequestCounts{s.profiles.nowhere.counted(NoProfile)}
	for id, p := range s.profiles.last.Load().byID {
		all = append(all, p.counts.counted(id))
	}
	return all
}

func (c *counts) counted(profile string) RequestCounts {
	r := RequestCounts{Profile: profile, Errors: map[string]int64{}}
	for i, name := range countedMethods {
		if n := c.methods[i].requests.Load(); n > 0 {
			r.Methods = append(r.Methods, MethodCounts{name, n, time.Duration(c.methods[i].nanos.Load())})
		}
	}
	for code := range c.errors {
		if n := c.errors[code].Load(); n > 0 {
			r.Errors[codes.Code(code).String()] = n
		}
	}
	return r
}
