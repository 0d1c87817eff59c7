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
// The messages of ReadRows are encoded by hand from cells into buffers of a pool. Codec passes them
// on to grpc-go, which returns each buffer to the pool when it is sent.
//
// # Departures from Google's service
//
// Limits are those of the cluster, and wider. App profiles,
// and the idempotency token of MutateRow, have no effect. Aggregate cells, views, sessions, change streams and SQL are answered with UNIMPLEMENTED and a sentence.
// The request statistics of a read with a filter leave out what was looked at.
//
// # Nouns
//
//   - A Table is a table as the caller of a request may use it.
//   - A span is a row or a range of rows of a request.
//   - A sender encodes rows into messages and sends them.
//   - Entries are the row mutations of a MutateRows request.
//
// # Goroutines
//
// Each call runs on the goroutine of its stream. A scan has those of client.Scanner, which end with
// the call.
//
// # Invariants
//
//	GB1. A message encoded by hand decodes to the ReadRowsResponse with the same chunks.
//	GB2. The spans of a request ascend, do not overlap, and contain exactly the rows of the request.
//	GB3. The chunks of a row begin with its key, family and qualifier, and end with its only commit.
//	     If the client needs whole rows, they are in one message.
//	GB4. MutateRows answers each index of the request once.
package bigtable
