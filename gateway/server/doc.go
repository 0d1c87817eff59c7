// Package server is the gRPC server of Cloud Bigtable's API at one port of a node: it registers the
// services of packages bigtable and bigtableadmin, and bounds connections, headers and messages.
//
// It serves plain connections, without authentication. A node without certificates may offer it on
// loopback addresses only.
//
// # Goroutines
//
//	goroutine        started by    ends when
//	accept           Serve         Shutdown, which joins it
//	of grpc-go       Serve         its connection or its call ends; Shutdown joins them
//
// # Invariants
//
//	GS1. A panic in a handler fails its call with INTERNAL, and nothing else.
//	GS2. A method that does not exist here is answered with UNIMPLEMENTED and a sentence.
package server
