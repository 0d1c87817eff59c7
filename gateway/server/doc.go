// Package server is the gRPC server of Cloud Bigtable's API at one port of a node: it registers the
// services of packages bigtable and bigtableadmin, and bounds connections, headers and messages.
//
// TLS, if any, ends below: the listener returns connections after their handshake. Config.Caller
// authenticates the caller of each call, by the connection or by an access token in the call's headers.
//
// # Memory
//
// A connection counts the payload of the DATA frames that it receives, and charges it three times: as
// it is received, in one piece, and decoded. The charge ends with the call. While all charges exceed
// the limit, no connection is read, so that TCP makes clients wait. If that lasts 2 s, the connection
// with the largest charge is closed. Calls, connections, reads of many rows, and large rows are charged with
// estimates; a call for which there is no memory is rejected with UNAVAILABLE and a RetryInfo.
//
// The charges of all connections of an owner, a user, are one sum. A call is accepted if what its owner
// has then is not more than what is left for others. The connections of an owner that has received more
// than half of the limit wait on their own. An owner has at most half of the connections.
//
// A session is a call that stays: its messages are charged until they are answered. Sessions may take a
// quarter of the limit.
//
// What arrives for a call before it is counted is not charged.
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
//	GS3. A call is authenticated before its request is received.
//	GS4. A method that does not exist here is answered with UNIMPLEMENTED and a sentence.
package server
