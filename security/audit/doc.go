// Package audit writes down who did what to the cluster, and who was refused.
//
// # What is written
//
// A record has who asked, from where, for what on what, and what came of it. It has no
// field for rows, values, parameters or credentials, and what texts it has are cut at
// 256 bytes and scrubbed of what looks like a token or a private key.
//
// Actions of the cluster's administrators and of nodes go to audit.log, those of
// administrators of single tables to table-admins.log. Both are durable when Action
// returns. Refusals go to refusals.log within a second or two; those that are alike are
// one record a minute, with a count. Anyone who reaches a port can make refusals: so they
// wait in bounded memory, take bounded space on the disk, and no user displaces records
// of those with more rights.
//
// # Files
//
// One JSON object a line, with these keys, of which empty ones are left out:
//
//	time      of the action, or of the first refusal of those counted: RFC 3339 in UTC
//	node      id of the node that has written it
//	kind      of who asked: principal, node or anonymous
//	name      of the principal, or id of the node
//	from      host:port of the connection; of refusals that are counted, the first's
//	action    the method; connect of a connection that was not taken, http of a page
//	on        what it is about, such as "table webtable", "tablet 7 of table webtable"
//	outcome   done, refused or failed
//	code      name of the error; of connect why: expired, not_yet_valid, untrusted,
//	          other_cluster, removed, many_connections, no_tls, bad_handshake
//	text      of the error
//	request   the request's trace id
//	repeated  how many refusals this stands for, if more than one
//	log       audit, table-admins or refusals
//	seq       number of the line in this log of this node, from 1
//	prev      SHA-256 of the line before it, without the line feed, in hexadecimal;
//	          empty in the first line
//
// Example:
//
//	{"time":"2027-01-01T12:00:00.000Z","node":"n1","kind":"principal","name":"ann","from":"10.0.0.9:4711","action":"drop_table","on":"table t","outcome":"done","request":"7f","log":"audit","seq":1,"prev":""}
//
// audit.log has at most Config.BytesMax bytes; then it becomes audit.log.1, that one
// audit.log.2, and so on, and the one after Config.Files is deleted. So do the others.
// After a power loss what was not durable is cut off: lines at the end that are no JSON.
//
// # Evidence of removal
//
// The lines of a log are a chain, across its files, by seq and prev: Verify finds lines
// that were changed, removed, repeated or moved. A process that can write to the files can
// compute a whole chain anew, or cut lines off its end. Against that, Config.Sink gets each line as
// it is written, and Config.Logger the ends of the chains, each hour, when the log is
// opened and when it is closed. VerifyFolder compares such an end with the files.
//
// # Bounds
//
//	refusals that are told apart   1000     further ones are counted together
//	of one principal, or host      20       further ones are counted together
//	without a credential
//	bytes that wait for the sink   4 MiB    further records are not sent, and counted
//	bytes on the disk              3 * Files * BytesMax
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	flush      Open        Close      writes refusals, each second
//	ship       Open        Close      sends records to the sink, if there is one
//
// # Invariants
//
//	L1. An action for which Action returned nil is in the log after a power loss.
//	L2. Every line is a whole record.
//	L3. No flood of refusals blocks its caller, takes more memory or disk than its
//	    bound, or removes an action from the log; and none is lost without being counted.
//	    No requester takes more than 20 records a minute of refusals.log.
//	L4. No record holds a token's secret or a private key.
//	L5. A line that is changed, taken out, repeated or moved is found by Verify; one that
//	    is cut off the end by an end that was noted elsewhere.
package audit
