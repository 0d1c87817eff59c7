// Package dataapi serves the requests for rows: mutations, reads, conditional and read-modify-write changes, and scans (paper §2, §3). A
// request passes through the same steps: decode with bounds, its quotas (package quotas), the tablet server (package tablet), which
// checks the caller's rights by an Access (package authz) for each family, the answer in bounded memory (package results). A new method needs
// its name in client/api, a registration here with its handler and its guard (authz.Own), and its line in docs/rpc.md; tests name
// what is missing (see ARCHITECTURE.md).
//
// Scans keep a cursor on the node between batches; idle cursors are closed, and a user's number and memory of cursors are bounded.
// Filters with long patterns take turns, so that they leave processors to other requests. Compiled filters are cached.
//
// Goroutines: handlers run on those of package rpc, most mutations and point reads without one of their own. One closes idle cursors.
package dataapi
