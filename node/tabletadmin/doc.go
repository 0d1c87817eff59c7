// Package tabletadmin splits, moves, merges, compacts and describes tablets for operators, whatever servers they are on (paper §5). Any node
// takes such a request. It locates the tablet by METADATA, and has the tablet's server (split, compact) or the master (move, merge) do
// the work. A request that meets a tablet between two servers waits until it is served. No goroutines beyond a request.
//
// # Invariants
//
//	AD1. A move or merge that is sent again, to a new master, has been checked not to have been made: its keys may belong to other
//	    tablets by then.
//	AD2. Row keys are not in the audit log: a tablet that is named by a row is logged by its id.
package tabletadmin
