// Package rpc carries requests and answers between clients and nodes, and between
// nodes: MessagePack-RPC, in two modes on one port.
//
// The Bigtable paper takes its RPC system for granted. Only §9 speaks of it: after
// memory and network corruption "we added checksumming to our RPC mechanism", and
// this one has it from the start. Where we depart is that anyone may call: the
// plain mode is the public
// MessagePack-RPC spec and nothing else
// (https://github.com/msgpack-rpc/msgpack-rpc/blob/master/spec.md), so that a
// client exists for any language.
//
// # The first byte
//
// The first byte that a client sends decides what its connection is:
//
//	0x90-0x9f, 0xdc, 0xdd   a MessagePack array: plain mode
//	0x53 'S'                the preamble: framed mode
//	any other               the listener that claimed it (Server.Claim, which
//	                        consumes the byte), or else the connection is closed
//
// # Messages
//
// Both modes carry the same messages, MessagePack arrays:
//
//	[0, msgid, method, params]   request
//	[1, msgid, error, result]    response; error is nil, or result is
//	[2, method, params]          notification; never answered
//
// msgid is any unsigned integer of 32 bits. method is a str or bin of at most 128
// bytes, params an array. Responses come in any order. A notification of a method
// that does not exist is ignored. An error is a map of "code" (uint), "name"
// (str), "message" (str), "retryable" (bool) and keys that depend on the code; see
// Code and Error. A reader ignores keys that it does not know.
//
// What is not such an array, nests deeper than 32, or is larger than the server's
// limit, is answered with bad_request or too_large if it begins like a request, so
// that its msgid is known, and ends the connection.
//
// # Framed mode
//
// Byte order is little-endian (MessagePack's own is big-endian). The client opens
// with the preamble and waits for the server's, which has the same form:
//
//	 0           5    6    7    8
//	+-----------+----+----+----+
//	| "STELE"   |ver |feat|'\n'|
//	+-----------+----+----+----+
//
// ver is the highest version that the sender speaks, at least 1; both then speak
// the lower. feat holds feature bits that both must set for a feature to be used;
// version 1 has none and ignores them. Then both sides send frames:
//
//	 0         4          8         12        16               16+length
//	+---------+----------+---------+---------+----------------+
//	| length  | timeout  | flags   | crc     | message        |
//	+---------+----------+---------+---------+----------------+
//	  u32       u32        u32       u32       length bytes
//
//	length   of the message, in bytes; not 0
//	timeout  milliseconds from arrival after which the client waits no more;
//	         0: none. Requests only; 0 in all else
//	flags    bits 0-15 may be ignored by who does not know them, bits 16-31 must
//	         be known: a frame with one that is not ends the connection.
//	         Version 1 defines none
//	crc      CRC-32C (Castagnoli) of the first 12 bytes and the message
//	message  one MessagePack-RPC message as above, exactly length bytes
//
// Worked example: the request [0, 1, "get", ["k"]] with a timeout of 1000 ms.
//
//	0e 00 00 00  e8 03 00 00  00 00 00 00  31 56 75 ca
//	94 00 ce 00 00 00 01 a3 67 65 74 91 a1 6b
//
// A server that shuts down sends the notification [2, "rpc.goaway", []]. The
// client then sends no new request and closes the connection once its answers are
// in; the server goes on serving until then, or for one second.
//
// A client whose calls wait, and that has received nothing for a while, sends the
// request [0, msgid, "ping", []]; any answer will do. A server sends the notification
// [2, "rpc.alive", []] while it reads no requests and so cannot answer that one. Where
// neither comes, the client ends the connection. In plain mode nothing of this is sent.
//
// # Nouns
//
//   - A Server has methods, each with a Mode that says where its handler runs.
//   - A Call is one request in the hands of its handler, to be answered once, from
//     any goroutine.
//   - A Conn is a client's framed connection, shared by any number of callers.
//   - A Peer is the other end of a server's connection. Who it is, the server's owner
//     knows (ServerConfig.Identify): package rpc only passes it on to handlers, and asks
//     ServerConfig.Guard whether a request of it is to be handled at all, and
//     ServerConfig.Admit, where the handler runs, whether the call is let in.
//
// # Bounds
//
//	queue                        bound                 when full
//	requests in flight, of one   InFlightMax           the connection is not read
//	  connection
//	bytes of requests in flight  MemoryBytesMax, less  wait AdmitWait, then overloaded
//	  and unsent responses       MemoryKept but for
//	                             Preferred peers
//	read buffers, over 8 KiB     MemoryBytesMax / 4    they stay small
//	  a connection
//	a message that comes in      grows as bytes come   as above; in plain mode the
//	                                                   connection ends
//	unsent responses of one      UnsentBytesMax        the connection is not read; at
//	  connection                                       16 times as much it is closed
//	requests that wait for       WorkQueue             wait AdmitWait, then overloaded
//	  workers, or have one
//	spawned handlers             SpawnedMax            wait AdmitWait, then overloaded
//	waiting handlers             WaitingMax            wait AdmitWait, then overloaded
//	the last three of one owner  as many as are free   wait AdmitWait, then overloaded
//	connections                  ConnsMax, less        closed at once
//	                             ConnsKept but for
//	                             Preferred peers
//	those that say nothing       FirstByteTimeout,     closed
//	                               if there is one
//	claimed, not yet accepted    64                    closed at once
//	client: calls in flight      ConnConfig.           the caller waits
//	client: unsent bytes           InFlightMax,
//	                               UnsentBytesMax
//
// # Goroutines
//
//	goroutine          started by    stopped by            owns
//	reader, one each   ServeConn     end of input, Close   read buffer, dispatch;
//	  connection                                           writes what its batch left
//	flusher, one each  reader        reader, at its end    writes answers that come
//	  connection                                           while the reader waits
//	workers            first conn,   Close, LeavePool      Pooled handlers
//	                   LeavePool
//	spawned, up to     reader        Close                 Spawned handlers, one
//	  SpawnedMax                                           after another
//	waiting, up to     reader        Close, or after the   Waiting handlers
//	  WaitingMax                       call when many
//	slow clients       Crowded       its end               looking for them
//	client reader      NewConn       fail, Close           read buffer, delivery
//	client flusher     NewConn       fail, Close           all writes
//	client watch       NewConn       fail, Close           pings
//
// Goroutines outlive the call that they were started for, and nobody sleeps to let writes gather: while
// one write is on its way the next one's messages gather behind it, and what a
// server's reader answers from one read goes out in one write.
//
// # Invariants
//
//	P1. No input crashes the server, and none makes it hold more memory than the
//	    bounds above (I11).
//	P2. Bytes whose checksum is wrong are never delivered (I7).
//	P3. A call is answered at most once, with the answer to its own request.
//	P4. A request is executed at most once by its server, and never after its
//	    deadline has passed or after it was refused.
//	P5. A ConnLostError with Sent false was not executed.
//	P6. After Close no goroutine of the server or connection is left.
//	P7. No call outlives its server's silence, and none is ended by a server that
//	    lives, however long it takes.
package rpc
