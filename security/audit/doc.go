// Package audit writes down who did what to the cluster, and who was refused.
//
// # What is written
//
// A record has who asked, from where, for what on what, and what came of it. It has no
// field for rows, values, parameters or credentials, and what texts it has are cut at
// 256 bytes and scrubbed of what looks like a token or a private key.
//
// Actions, those of administrators, go to audit.log and are durable when Action returns.
// Refusals go to refusals.log within a second or two; those that are alike are one record
// a minute, with a count. Anyone who reaches a port can make refusals: so they wait in
// bounded memory, take bounded room on the disk, and push no action out of its file.
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
//
// Example:
//
//	{"time":"2027-01-01T12:00:00.000Z","node":"n1","kind":"principal","name":"ann","from":"10.0.0.9:4711","action":"drop_table","on":"table t","outcome":"done","request":"7f"}
//
// audit.log has at most Config.BytesMax bytes; then it becomes audit.log.1, that one
// audit.log.2, and so on, and the one after Config.Files is deleted. So does refusals.log.
// After a power loss what was not durable is cut off: lines at the end that are no JSON.
//
// # Bounds
//
//	refusals that are told apart   1000   further ones are counted together
//	bytes on the disk              2 * Files * BytesMax
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	flush      Open        Close      writes refusals, each second
//
// # Invariants
//
//	L1. An action for which Action returned nil is in the log after a power loss.
//	L2. Every line is a whole record.
//	L3. No flood of refusals blocks its caller, takes more memory or disk than its
//	    bound, or removes an action from the log; and none is lost without being counted.
//	L4. No record holds a token's secret or a private key.
package audit
