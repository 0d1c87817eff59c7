// Package client is the library that programs use Stele by (paper §3). It finds
// the server of a row, keeps connections, batches, streams scans ahead of their
// reader, and tries again where that is safe.
//
//	c, err := client.Open(ctx, "127.0.0.1:7106", client.Config{})
//	t := c.Table("webtable")
//
//	// Figure 2: write a new anchor and delete an old one.
//	m := client.NewRowMutation("com.cnn.www")
//	m.Set("anchor:www.c-span.org", []byte("CNN"))
//	m.Delete("anchor:www.abc.com")
//	err = t.Apply(ctx, m)
//
//	// Figure 3: all anchors of one row, all versions.
//	row, err := t.Get(ctx, "com.cnn.www", client.Families("anchor"))
//	for _, cell := range row.Cells {
//		fmt.Printf("%s %s %d %s\n", row.Key, client.ColumnName(&cell), cell.Timestamp, cell.Value)
//	}
//
// # Finding tablets
//
// A call for a row goes to the server that has the row's tablet. The client knows it from
// METADATA (paper §5.1), in three steps: any node tells where the root tablet is, that one
// where the METADATA tablet is, and that one where the tablet is, and the 63 after it. What
// is known is kept, until a server refuses a call or does not answer: then that tablet alone is
// looked up, from below, and the steps above it only if those prove wrong, too. So a lookup
// takes one round trip mostly, three with nothing known and six with all wrong. Calls that
// want the same share it. A server that refuses may say who has the tablet, which saves it. While
// 1 MiB of requests or more waits to be sent to the node that is asked, it goes by a connection of its own, or by
// the first one if the node takes no other.
//
// Each request about rows names the id that the table had in METADATA. If the table was dropped meanwhile and another has
// its name, the server refuses the request: then all that is known of the table is forgotten, and the call goes to the other.
//
// A tablet that no server has, because it moves or is recovered, is waited for, until
// RetryTimeMax.
//
// Batches are divided by servers. What has moved meanwhile is sent again, and nothing else.
// A scan reads each server's part there, and is a batch ahead also from one server to the next.
//
// In a cluster without METADATA the node that is asked serves what there is; the client goes
// to the addresses it was given, until a node does not serve what it should.
//
// # Where we depart from the paper
//
// Its Scanner looks one row up or walks many. Here Get does the first and Scan the
// second; both return rows, since a row is what is read atomically. Its clients read the
// root's place in Chubby; here a node does that for them, from its session's cache.
//
// # Calls that fail
//
// A node that cannot be reached, that says it is overloaded or not serving, or that
// refuses for another reason that it calls retryable, has executed nothing: the
// call waits, with jitter, at least as long as the node asked for, and is made
// again, until RetryTimeMax or its context ends. A connection that breaks leaves
// open what came of the calls on it. Reads are made again, scans go on behind the
// last row that they delivered. A change returns an *AmbiguousError, unless Replay
// allows another attempt. What a node refuses for good is returned at once.
//
// Calls that reach nodes again are taken from a budget that the calls that succeed
// fill up. When it is empty, errors are returned at once: otherwise the retries of
// many clients would keep a node that is overloaded from ever recovering.
//
// # Nouns
//
//   - A Client is a set of connections to the nodes of one cluster, safe for
//     concurrent use. One is enough for a program.
//   - A Table is a name with methods: making one costs nothing.
//   - A RowMutation is changes to one row, applied together.
//   - A Scanner is one pass over a range of rows.
//   - The locator says which node a row is at. It keeps a location of each tablet that it
//     was told of, in an order that a call can search without a lock.
//   - A flight is a lookup under way.
//
// # Goroutines
//
//	goroutine        started by            ends when                     owns
//	dial             first call that       the dial succeeds or fails;   one attempt to connect
//	                 needs a connection    Close cancels and joins it
//	leaver           first call refused by the node's answers are in;    a connection that takes no
//	                 a node that stops     Close joins it                more calls
//	rpc reader       a dial that succeeds  the connection closes         see package rpc
//	scan fetcher     Scanner.Next, first   the range ends, Close or the  the scan's cursor and
//	                                       context; Close joins it       the batch read ahead
//	batch sender     ApplyAll, GetAll      its batch is answered; joined one batch
//	flight           a call whose tablet   the tablet is found or not;   one lookup; at most
//	                 is not known          Close cancels and joins it    four for each table
//	blob pieces      PutBlob               the call ends, and its        reading the caller's
//	                                       reader has returned           io.Reader
//	blob reads       CopyBlob              the call ends, which joins    a piece each, four ahead
//	                                       them
//
// # Invariants
//
//	C1. A change that is not replayable is sent a second time only after its node
//	    said that it executed nothing, or when it surely was not sent.
//	C2. A change whose outcome is unknown yields an *AmbiguousError, never another
//	    error and never nil.
//	C3. A scan delivers each row of its range that lives through the scan once, in
//	    order, whatever happens to connections and cursors.
//	C4. A Scanner holds at most two batches: the one being read and the next.
//	C5. After Close no goroutine and no connection of the Client is left, but for one that
//	    waits for a reader that was given to PutBlob and does not return.
//	C6. Locations of a table do not overlap, and tell what METADATA, or else a hint, last
//	    said of the row; none is used again after a call went there in vain.
//	C7. Limit and the order of rows are the whole scan's, however many servers it reads.
//	C8. A scan delivers rows of one table, also if another gets its name meanwhile.
package client
