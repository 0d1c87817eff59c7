// Package bigtable serves the data API of Cloud Bigtable, google.bigtable.v2.Bigtable, from a client
// of the cluster (paper §3).
//
// A request names its table in the message; headers are only hints. The service converts the request
// to a call of the client, which finds the tablet servers and retries what is safe, and converts the
// error by package errcode. Nothing is kept between requests.
//
// # Reads
//
// ReadRows sorts the keys and ranges of a request and merges them to spans. One row is a point read.
// All others are one scan, which sends each tablet server the spans that it has.
//
// A message ends behind a row once it has 256 KiB, and whenever the reader would wait for a tablet
// server: small reads and the first rows of a scan are sent at once. While a filter drops all rows, a
// key up to which they were looked at is sent, if the client accepts that.
//
// A value over 1 MiB is sent in chunks of 1 MiB, and a row over 1 MiB in several messages, except to
// Google's Go client, which forgets an unfinished row at the end of a message.
//
// A point read asks for a row of at most 64 KiB, and a scan for rows of at most 256 KiB. If a row is larger,
// the service reserves memory for one of 1 MiB, and then for the largest that it may send, and repeats
// the read; a scan continues behind the last row that it sent. A row that is larger still is FAILED_PRECONDITION. The call, or the
// virtual RPC, holds the memory, and does not end, until grpc-go has written its messages. A point read
// reserves memory for a message of over 4 KiB, too.
//
// The messages of ReadRows are encoded by hand from cells into buffers of a pool. Codec passes them
// on to grpc-go, which returns each buffer to the pool when it is sent.
//
// # Batches
//
// A MutateRows request is not decoded as a whole, but stays in the buffers in which it was received. A first pass finds its entries, and divides them into
// groups by the memory that they take decoded. Then each group is decoded, applied and answered, one after the other. Entries are protobuf messages: one
// that is malformed has a status of its own, since others may have been executed.
//
// # Sessions
//
// A point read by ReadRows costs a stream of HTTP/2, which is most of its cost. In a session, one stream
// of OpenTable, or of OpenAuthorizedView, carries many virtual RPCs: reads and mutations of a row, one after the other. Clients
// open as many sessions as they have calls at the same time, if GetClientConfiguration returns a
// session load of 1, and they are not connected as to an emulator.
//
// Each virtual RPC opens the table anew, so that the caller's rights are those of that moment. While it is
// in progress, the client gets a heartbeat each second. Before the node shuts down, it sends a GoAway.
// A message is charged until the next one is received. If there is no memory for another session,
// OpenTable is answered with UNIMPLEMENTED: clients then use plain calls.
//
// # Change streams
//
// ReadChangeStream reads with client.Changes, and gives each change the token behind it. A partition is any range of rows. The first ones
// are those of the tablets. When the tablet of a partition is split, its stream ends with a token for each part; a merge ends no stream.
//
// An idle stream reads at most 8 KiB of changes at a time, and reserves no memory for them. After that it reserves memory for 128 KiB until there are no
// more, and more than that while it reads and sends a larger one.
//
// # App profiles
//
// A request has an app profile, "default" unless it names another one. One that does not exist is NOT_FOUND. A profile may forbid CheckAndMutateRow and
// ReadModifyWriteRow; since there is one cluster, that is all that its routing does. Requests are counted by profile.
//
// The service has a copy of all profiles, so that a lookup costs no call. A request that finds it older than 5 s reads it anew; one that finds it older
// than 30 s, or without its profile, waits for that. A virtual RPC uses the profile as it is then.
//
// # Departures from Google's service
//
// Limits are those of the cluster, and wider, unless Config.StrictLimits is set. The priority of an app profile
// has no effect, nor does the idempotency token of mutations that only set and delete cells. Materialized views and SQL are answered with UNIMPLEMENTED and a sentence.
// The request statistics of a read with a filter leave out what was looked at.
//
// # Nouns
//
//   - A Table is a table, or an authorized view of one, as the caller of a request may use it.
//   - A span is a row or a range of rows of a request.
//   - A sender encodes rows into messages and sends them.
//   - Entries are the row mutations of a MutateRows request, and a group some of them that follow each other.
//   - A session is a stream of virtual RPCs about one table, or one view.
//   - A Peer is what clients learn of the node, from headers.
//
// # Goroutines
//
// Each call runs on the goroutine of its stream. A scan has those of client.Scanner, which end with
// the call. A heartbeat, or the GoAway of an idle session, is sent by the goroutine of a timer, which
// OpenTable stops and waits for.
//
// # Invariants
//
//	GB1. A message encoded by hand decodes to the ReadRowsResponse with the same chunks.
//	GB2. The spans of a request ascend, do not overlap, and contain exactly the rows of the request.
//	GB3. The chunks of a row begin with its key, family and qualifier, and end with its only commit.
//	     If the client needs whole rows, they are in one message.
//	GB4. MutateRows answers each index of the request once, unless the whole call fails.
//	GB5. Of the virtual RPCs of a session, those up to the id in its GoAway are executed and answered
//	     unless the session breaks, and no others.
//	GB6. A row, or change, above the first bound of its read is read only while memory for it is reserved, which is
//	     released after the row was written to the connection.
//	GB7. A request uses an app profile as it was at most 30 s ago, and as the node itself has last changed it. A profile is found 0.2 s after its
//	     creation at the latest.
//	GB8. A request is decoded only while memory for its messages is reserved, however few bytes it has; of a MutateRows, for a group. So is any
//	     large answer, until it is written.
package bigtable
