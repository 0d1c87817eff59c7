// Package rpc implements MessagePack-RPC between clients and nodes, and between nodes. It serves
// two modes, plain and framed, on one port.
//
// The Bigtable paper does not describe its RPC system. Only §9 mentions it: after memory and
// network corruption, "we added checksumming to our RPC mechanism". The framed mode has checksums.
// The plain mode is an addition: it is the public MessagePack-RPC spec
// (https://github.com/msgpack-rpc/msgpack-rpc/blob/master/spec.md) without extensions, so clients
// exist for any language.
//
// # The first byte
//
// The first byte that a client sends selects the protocol of the connection:
//
//	0x90-0x9f, 0xdc, 0xdd   a MessagePack array: plain mode
//	0x53 'S'                the preamble: framed mode
//	any other               the listener that claimed it (Server.Claim, which
//	                        consumes the byte); the connection is closed if
//	                        none did
//
// # Messages
//
// Both modes carry the same messages, which are MessagePack arrays:
//
//	[0, msgid, method, params]   request
//	[1, msgid, error, result]    response; error is nil, or result is
//	[2, method, params]          notification; has no response
//
// msgid is an unsigned integer of 32 bits. method is a str or bin of at most 128 bytes. params is
// an array. Responses come in any order. A notification of an unknown method is ignored. An error
// is a map with "code" (uint), "name" (str), "message" (str), "retryable" (bool) and keys that
// depend on the code; see Code and Error. A reader ignores keys that it does not know.
//
// Any other input ends the connection: a value that is not such an array, nests deeper than 32 or
// is larger than the server's limit. If it begins like a request, so that its msgid is known, the
// server first answers with bad_request or too_large.
//
// # Framed mode
//
// Byte order is little-endian (MessagePack's own is big-endian). The client opens with the
// preamble and waits for the server's, which has the same form:
//
//	 0           5    6    7    8
//	+-----------+----+----+----+
//	| "STELE"   |ver |feat|'\n'|
//	+-----------+----+----+----+
//
// ver is the highest version that the sender supports, at least 1; both sides then use the lower
// one. feat holds feature bits; a feature is used if both sides set its bit. Version 1 defines no
// features and ignores the bits. Then both sides send frames:
//
//	 0         4          8         12        16               16+length
//	+---------+----------+---------+---------+----------------+
//	| length  | timeout  | flags   | crc     | message        |
//	+---------+----------+---------+---------+----------------+
//	  u32       u32        u32       u32       length bytes
//
//	length   of the message, in bytes; not 0
//	timeout  milliseconds from arrival until the request's deadline; 0: no
//	         deadline. Requests only; 0 in other messages
//	flags    a receiver ignores unknown bits 0-15; a frame with an unknown bit
//	         16-31 ends the connection. Version 1 defines none
//	crc      CRC-32C (Castagnoli) of the first 12 bytes and the message
//	message  one MessagePack-RPC message as above, exactly length bytes
//
// Worked example: the request [0, 1, "get", ["k"]] with a timeout of 1000 ms.
//
//	0e 00 00 00  e8 03 00 00  00 00 00 00  31 56 75 ca
//	94 00 ce 00 00 00 01 a3 67 65 74 91 a1 6b
//
// A server that shuts down sends the notification [2, "rpc.goaway", []]. The client then sends no
// new requests and closes the connection when it has received its responses. The server keeps
// reading requests until then, for at most one second.
//
// A client with calls in flight that has received nothing for a while sends the request
// [0, msgid, "ping", []]; any response will do. A server sends the notification
// [2, "rpc.alive", []] while it does not read requests and so cannot answer a ping. If the client
// receives neither, it closes the connection. The plain mode has none of these messages.
//
// # Nouns
//
//   - A Server has methods, each with a Mode that selects the goroutine of its handler.
//   - A Call is one request on the server. Its handler answers it once, from any goroutine.
//   - A Conn is a client's framed connection, shared by any number of callers.
//   - A Peer is the client end of a server's connection. ServerConfig.Identify sets its identity,
//     which package rpc passes to handlers and does not interpret. ServerConfig.Guard may reject
//     a request by its peer and method; ServerConfig.Admit may reject it where its handler runs.
//   - An owner is the principal that a connection's calls are counted against
//     (ServerConfig.OwnerOf).
//
// # Bounds
//
//	resource                     bound                 when full
//	requests in flight, of one   InFlightMax           the connection is not read
//	  connection
//	bytes of requests in flight  MemoryBytesMax;       wait AdmitWait, then overloaded
//	  and unsent responses       ReservedMemory of it
//	                             is for Preferred peers
//	read buffers, beyond 8 KiB   MemoryBytesMax / 4    the buffers do not grow
//	  a connection
//	a message being received     its buffer grows as   as for requests in flight; in
//	                             bytes arrive          plain mode the connection ends
//	unsent responses of one      UnsentBytesMax        the connection is not read; at
//	  connection                                       16 times the bound it is closed
//	requests queued for or run   WorkQueue + Workers   wait AdmitWait, then overloaded
//	  by workers
//	spawned handlers             SpawnedMax            wait AdmitWait, then overloaded
//	waiting handlers             WaitingMax            wait AdmitWait, then overloaded
//	the last three of one owner  as many as are free   wait AdmitWait, then overloaded
//	connections                  ConnsMax;             closed at once
//	                             ReservedConns of it
//	                             are for Preferred
//	                             peers
//	connections before their     FirstByteTimeout,     closed
//	  first byte                 if it is set
//	claimed, not yet accepted    64                    closed at once
//	client: calls in flight      ConnConfig.           the caller waits
//	client: unsent bytes           InFlightMax,
//	                               UnsentBytesMax
//
// # Goroutines
//
//	goroutine          started by    stopped by            owns
//	reader, one each   ServeConn     end of input, Close   read buffer, dispatch;
//	  connection                                           writes its batch's responses
//	flusher, one each  reader        reader, at its end    writes responses that are ready
//	  connection                                           while the reader is blocked
//	workers            first conn,   Close, LeavePool      Pooled handlers
//	                   LeavePool
//	spawned, up to     reader        Close                 Spawned handlers, one
//	  SpawnedMax                                           after another
//	waiting, up to     reader        Close; after the call Waiting handlers
//	  WaitingMax                       beyond SpawnedMax
//	dropSlow           Memory-       end of the pressure   closing slow clients
//	                   Pressure
//	client reader      NewConn       fail, Close           read buffer, delivery
//	client flusher     NewConn       fail, Close           all writes
//	client watch       NewConn       fail, Close           pings
//
// Goroutines are reused for many calls. Writes are coalesced without a delay: messages that are
// appended during one write go out with the next, and the responses that a server's reader
// produces from one read go out in one write.
//
// # Invariants
//
//	P1. No input crashes the server or makes it hold more memory than the
//	    bounds above (I11).
//	P2. Bytes whose checksum is wrong are never delivered (I7).
//	P3. A call is answered at most once, with the response to its own request.
//	P4. A request is executed at most once by its server, and never after its
//	    deadline has passed or after it was rejected.
//	P5. The request of a ConnLostError with Sent false was not executed.
//	P6. After Close no goroutine of the server or connection is left.
//	P7. Every call to a server that has gone silent ends. No call is ended because
//	    of silence while its server is alive, however long the call takes.
package rpc
