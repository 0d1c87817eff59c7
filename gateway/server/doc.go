// Package server is the gRPC server of Cloud Bigtable's API at one port of a node: it registers the
// services of packages bigtable and bigtableadmin, and bounds connections, headers and messages.
//
// TLS, if any, ends below: the listener returns connections after their handshake. Config.Caller
// authenticates the caller of each call, by the connection or by an access token in the call's headers.
//
// # Memory
//
// A connection follows the frames of HTTP/2 in both directions. It charges the payload of a stream's DATA
// frames three times, as it is received, in one piece, and decoded, until either side has ended the stream
// and the handler of the call has ended: a client that resets a stream, or closes its connection, stops
// no handler at once. A request of MutateRows, which is decoded in groups of entries, is charged once, and a group. A session is a stream that stays: the charge of a message ends when the handler receives the next one.
// Calls, reads of many rows, and large rows are charged with estimates. A call for which there is no memory is rejected with UNAVAILABLE
// and a RetryInfo.
//
// grpc-go does not expose the number of a call's stream. Its tap runs between two frames on the goroutine that
// reads the connection, when the last HEADERS frame that was read is that of the call. So a connection has
// the buffer that grpc-go would have.
//
// While all charges exceed the limit, no connection is read, so that TCP makes clients wait. If that lasts
// 2 s, the connection with the largest charge is closed.
//
// Each connection has an owner, a user, and what its connections are charged is one sum. An owner may begin
// calls and reads as long as it has no more than what is left for others, and have as many connections
// and sessions as it leaves to others. The connections of an owner that has more than half of the limit
// wait on their own. What is not authenticated yet has a small share.
//
// Unary methods are served as streams (bigtable.Streams), so that a call is charged and authenticated
// before its request is received, on a goroutine of its own. The tap rejects no calls: after an error of it
// the timer of the call's timeout stays, for as long as the client likes.
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
//	GS5. A request is not decompressed: its bytes are those that are charged.
//	GS6. The bytes of a request are charged until its handler ends, or receives the next message, whatever frames follow.
package server
