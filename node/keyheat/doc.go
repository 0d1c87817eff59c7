// Package keyheat keeps which rows of a node's tablets were read and written, by ranges of rows and minutes, and returns it for a table from
// all nodes: a map of keys over time. The paper's §9 asks for monitoring of what a system does; package tablet/heat has the counters.
//
// At the end of each minute the node takes the counters of its tablets and appends them, with the splits, merges and loads of tablets
// since then, to a file. A request takes them as well, so that it includes the current minute. A node asks the others for their parts, and adds them up. A tablet
// that has moved is in the parts of both nodes.
//
// # Files
//
// The directory heat has three layers: minutes, quarters (of an hour) and hours. When the last minute of a quarter has passed, the quarter
// is the sum of its minutes, and so on. A layer has two files, NAME.0 and the older NAME.1. When NAME.0 has so many records that it spans what the layer
// promises, or segmentBytesMax, it becomes NAME.1. So there are always minutes for 4 h, quarters for 2 days and hours for 14 days, unless
// the bytes do not suffice. A file has a header and records:
//
//	   0  4096  "STELEHEAT1\n", then zeros: row keys begin after the page that an encrypted file has in the clear
//	4096     4  length of the record's body, little-endian
//	4100     4  CRC-32C of the body
//	4104        body: a MessagePack array; see column. Arrays may have more values at their ends, which a reader ignores.
//
// If the block store is encrypted, so are these files, with a key that follows from the master key; with another one they begin anew.
//
// Nothing is synced: a crash loses minutes, not rows. A damaged record ends its file, with a line in the log, and later records replace it.
//
// Goroutines: Run, started by the node, ends with its context. Requests read the files under the store's lock, which no request for rows takes.
//
//	KH1. The sum of the ranges of a column equals the counters that were taken for it (HM1), in each layer.
//	KH2. A node uses at most 6 × segmentBytesMax of disk, and memory for one column between requests.
//	KH3. hot_tablets counts no operation on a table that its caller may not read as a whole. A node sums for two requests at a time.
//	KH4. key_heat names the users of hot rows only to callers that may see the requests of other users (slow_requests).
package keyheat
