// Package client is the client library for Stele (paper §3). It finds the server of a row, manages
// connections, batches requests, reads ahead in scans, and retries where that is safe.
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
// Everything but rows is in handles, each for one kind of object:
//
//	schema, err := c.Tables().Create(ctx, "webtable", table.FamilySpec{Name: "anchor"})
//	err = c.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "webtable", Rights: "read"})
//
//	handle      administers
//	Tables      schemas, owners and stored data of tables
//	Tablets     splits, moves and merges
//	Nodes       drains and removals
//	Users       principals, their certificates and access tokens
//	Grants      rights of principals
//	JoinTokens  tokens of hosts that join the cluster
//	Quotas      quotas of tables and principals
//	Authority   rotation of the cluster's authority and gossip key
//	Blobs       blobs of users
//	BlockStore  checks and repairs of the store of blobs
//
// # Tablet location
//
// A call for a row goes to the server of the row's tablet. The client finds it in METADATA (paper
// §5.1) in three steps: any node returns the location of the root tablet, the root tablet that of
// the METADATA tablet, and the METADATA tablet that of the user's tablet and the 63 after it.
//
// The client caches locations until a server rejects a call or does not answer. It then looks up
// that tablet alone, from the lowest level, and the higher levels only if those are stale as well. A
// lookup takes one round trip in most cases, three with an empty cache and six if every level is
// stale. Concurrent calls share lookups. A server that rejects a call may return the tablet's
// location, which saves the lookup.
//
// If 1 MiB of requests or more waits to be sent to a node, a lookup uses a separate connection to
// it. If the node accepts no other connection, the lookup uses the first one.
//
// Each request about rows contains the table's id from METADATA. If the table was dropped and
// another table has its name, the server rejects the request. The client then discards everything
// cached for the table and sends the call to the other table.
//
// If a tablet is unassigned, because it is being moved or recovered, the call waits for it, for up
// to RetryTimeMax.
//
// Batches are divided by server. Only the rows of tablets that have moved meanwhile are sent again.
// A scan reads each tablet on its server, and reads one batch ahead, even across servers.
//
// In a cluster without METADATA each node serves all tables. The client uses the addresses that it
// was given, until a node does not serve a table.
//
// # Departures from the paper
//
// The paper's Scanner either looks up one row or iterates over many. Here Get does the first and
// Scan the second. Both return rows, since reads are atomic by row. The paper's clients read the
// root's location from Chubby; here a node returns it from the cache of its session.
//
// # Failed calls
//
// A node has executed nothing if it cannot be reached, is overloaded, does not serve the tablet, or
// rejects the call with another retryable error. The client then retries until RetryTimeMax or until
// its context ends. Retries are jittered and wait at least as long as the node requested. If a
// connection breaks, the outcome of the calls on it is unknown. Reads are retried, and scans continue
// after the last row delivered. A change returns an *AmbiguousError, unless Replay allows another
// attempt. Permanent errors are returned at once.
//
// Retries that reach nodes are taken from a budget, which successful calls refill. If it is empty,
// errors are returned at once. Otherwise the retries of many clients would prevent an overloaded
// node from recovering.
//
// # Nouns
//
//   - A Client is a set of connections to the nodes of one cluster, safe for concurrent use. A
//     program needs only one.
//   - A Table is a table's name with methods; creating one is free.
//   - A handle, such as Tables, holds a pointer to the Client's caller; creating one is free.
//   - A RowMutation is a set of changes to one row, applied atomically.
//   - A Scanner is one pass over a range of rows.
//   - The caller makes calls: it locates the server, sends the call, and retries it.
//   - The locator maps rows to nodes. It caches tablet locations in sorted order, so that calls
//     search them without a lock.
//   - The pool holds connections by address. A node has a slot for each of its connections.
//   - The lifetime ends at Close, which joins its goroutines.
//   - A flight is a lookup in progress.
//
// # Goroutines
//
//	goroutine        started by            ends when                     owns
//	dial             first call that       the dial succeeds or fails;   one attempt to connect
//	                 needs a connection    Close cancels and joins it
//	drainer          first call rejected   its calls are answered;       a connection that accepts
//	                 by a stopping node    Close joins it                no more calls
//	rpc reader       a dial that succeeds  the connection closes         see package rpc
//	scan fetcher     Scanner.Next, first   the range ends, Close or the  the scan's cursor and
//	                                       context; Close joins it       the batch read ahead
//	batch sender     ApplyAll, GetAll      its batch is answered; joined one batch
//	flight           a call whose tablet   the lookup succeeds or fails; one lookup; at most
//	                 is not cached         Close cancels and joins it    four for each table
//	blob pieces      Blobs.Put             the call ends, and its        reading the caller's
//	                                       reader has returned           io.Reader
//	blob reads       Blobs.Copy            the call ends, which joins    a piece each, four ahead
//	                                       them
//
// # Invariants
//
//	C1. A change that is not replayable is sent a second time only after its node
//	    reported that it executed nothing, or if it was certainly not sent.
//	C2. A change whose outcome is unknown returns an *AmbiguousError, never another
//	    error and never nil.
//	C3. A scan delivers each row of its range that exists throughout the scan once
//	    and in order, whatever happens to connections and cursors.
//	C4. A Scanner holds at most two batches: the current one and the next.
//	C5. After Close no goroutine and no connection of the Client is left, except a
//	    goroutine that waits for a reader passed to Blobs.Put that does not return.
//	C6. Locations of a table do not overlap. Each is the latest one from METADATA or
//	    from a hint, and none is used again after a call to it was misrouted.
//	C7. Limit and the order of rows apply to the whole scan, over all its servers.
//	C8. A scan delivers rows of one table, even if another one gets its name meanwhile.
//	C9. A call does not fail because of a lookup that began before it. It sees every table that was
//	    created, and every right that was granted, before the call.
package client
