// Package server is the gRPC server of Cloud Bigtable's API at one port of a node: it registers the
// services of packages bigtable and bigtableadmin, and bounds connections, headers and messages.
//
// It serves plain connections, without authentication. A node without certificates may offer it on
// loopback addresses only.
//
// # Memory
//
// A connection counts the payload of the DATA frames that it receives, and charges it three times: as
// it is received, in one piece, and decoded. The charge ends with the call. While all charges exceed
// the limit, no connection is read, so that TCP makes clients wait. If that lasts 2 s, the connection
// with the largest charge is closed. Calls, connections, and reads of many rows are charged with
// estimates; a call for which there is no memory is rejected with UNAVAILABLE and a RetryInfo.
//
// A session is a call that stays: its messages are charged until they are answered. Sessions may take a
// quarter of the limit.
//
// What arrives for a call before it is counted, and a read row that is larger than a message, are not
// charged.
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
//	GS2. The charges exceed the limit by at most one read of each connection, and the calls that begin
//	     at the same time.
//	GS3. A method that does not exist here is answered with UNIMPLEMENTED and a sentence.
package server
