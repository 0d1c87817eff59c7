// Package audit is the node's audit log: administrative actions on the cluster, and rejected
// requests (refusals).
//
// # Records
//
// A record names the requester and its address, the action and its subject, and the outcome. It
// has no field for rows, values, parameters or credentials. Its texts are cut at 256 bytes and
// scrubbed of anything that looks like a token or a private key.
//
// Actions of cluster administrators and of nodes go to audit.log, those of administrators of
// single tables to table-admins.log. Both are durable when Action returns. Refusals go to
// refusals.log within two seconds. Identical refusals are aggregated to one record per minute with
// a count. Any host that reaches a port can cause refusals. They are therefore buffered in bounded
// memory and take bounded disk space, and they never displace records of requesters with more
// rights.
//
// # Files
//
// Each line is a JSON object with these keys; empty ones are omitted:
//
//	time      of the action, or of the first of the aggregated refusals: RFC 3339 in UTC
//	node      id of the node that wrote the record
//	kind      of the requester: principal, node or anonymous
//	name      of the principal, or id of the node
//	from      host:port of the connection; of aggregated refusals, that of the first
//	action    the method; connect for a rejected connection, http for a page
//	on        the subject, such as "table webtable", "tablet 7 of table webtable"
//	outcome   done, refused or failed
//	code      name of the error; for connect the reason: expired, not_yet_valid, untrusted,
//	          other_cluster, removed, many_connections, no_tls, bad_handshake
//	text      of the error
//	request   the request's trace id
//	repeated  number of aggregated refusals, if more than one
//	log       audit, table-admins or refusals
//	seq       number of the line in this log of this node, from 1
//	prev      SHA-256 of the previous line, without the line feed, in hexadecimal;
//	          empty in the first line
//
// Example:
//
//	{"time":"2027-01-01T12:00:00.000Z","node":"n1","kind":"principal","name":"ann","from":"10.0.0.9:4711","action":"drop_table","on":"table t","outcome":"done","request":"7f","log":"audit","seq":1,"prev":""}
//
// audit.log is rotated at Config.BytesMax bytes: it becomes audit.log.1, which becomes
// audit.log.2, and so on. Config.Files files are kept. The other logs are rotated likewise. After
// a power loss, trailing lines that are not valid JSON are truncated; they were never durable.
//
// # Tamper evidence
//
// The lines of a log form a hash chain across its files, through seq and prev. Verify finds lines
// that were changed, removed, repeated or moved. A process with write access to the files can
// recompute the whole chain or truncate it. As a defense, each line is also sent to Config.Sink,
// and the head of each chain is logged to Config.Logger on open, on close and every hour.
// VerifyFolder compares such a head with the files.
//
// # Bounds
//
//	distinct refusals              1000     excess is counted together
//	distinct refusals of one       20       excess is counted together
//	principal, or of one host
//	without a credential
//	bytes queued for the sink      4 MiB    excess records are dropped and counted
//	bytes on disk                  3 * Files * BytesMax
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	flush      Open        Close      writes refusals every second
//	ship       Open        Close      sends records to the sink, if there is one
//
// # Invariants
//
//	AL1. An action for which Action returned nil is in the log after a power loss.
//	AL2. Every line is a complete record.
//	AL3. A flood of refusals never blocks its caller, exceeds its memory and disk bounds,
//	    or removes an action from the log. No refusal is lost without being counted.
//	    No requester gets more than 20 records per minute in refusals.log.
//	AL4. No record contains a token's secret or a private key.
//	AL5. Verify finds every line that was changed, removed, repeated or moved. A line cut
//	    off the end is found with a head that was recorded elsewhere.
package audit
