// Package dispatch takes the calls at a node's port to the services that registered their methods (package method). Before the service's handler
// runs, a call is checked: by its guard (package authz; package rpc calls it as Admit, on the handler's goroutine); whether the node serves
// data; whether the lock service has a leader, if the method needs it; and whether this node is the master, if only that may execute it. If
// it is not, the request is forwarded to the master's node in the principal's name (forward.go).
//
// Methods between nodes that must work while the node starts are registered by Early. A call that is cancelled when the leader is lost has a
// goroutine for that, which ends with its answer.
//
// # Invariants
//
//	DP1. A method without a guard cannot be registered.
//	DP2. A forwarded request is authorized on both nodes: on the master's with the caller's name, generation and token, of which the token
//	    is read again.
//	DP3. A request is forwarded again only if the node that got it did not execute it; otherwise its outcome is unknown.
package dispatch
