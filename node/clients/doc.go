// Package clients keeps what client processes report about themselves, for some minutes: how many calls they made and how many failed, the times as
// the client measured them, and how often it had to look up where a tablet is. The paper's §9 asks for monitoring of "the client processes using Bigtable",
// which see waits that no node does. A process reports only if its client.Config has ReportEvery.
//
// A report goes to any node, which keeps it in memory. Readers ask all nodes, and take the last report of a process.
//
// What a process reports is its own word: it is bounded, and shown, and nothing else depends on it. The package starts no goroutine.
//
// # Invariants
//
//	CP1. A node keeps at most api.ClientsMax processes, each with its last report, and of a user at most userMax. When there are as many, the
//	     user with the most processes loses the one that has not reported for the longest time. A report that is too large, or has numbers that no client
//	     can have, is rejected and changes nothing.
//	CP2. A process that has not reported for keepFor is forgotten.
//	CP3. A user cannot change what processes of other users reported. Only callers that may see the requests of other users (slow_requests) get
//	     the list. The metrics have no label.
package clients
