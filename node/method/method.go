// Package method has the interface by which the services of a node register their RPC methods. The node knows the guard of each method
// (package authz): a method without a guard cannot be registered.
package method

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// NamesHandler serves a method whose parameters are names. Its ctx has the caller (authz.SubjectIn).
type NamesHandler func(ctx context.Context, r *api.NamesRequest) (reply.Result, error)

// Registrar registers methods, which are served once the node serves data. It panics at a method without a guard.
type Registrar interface {
	Handle(method string, mode rpc.Mode, h func(*rpc.Call))
	// HandleNames registers a method whose parameters are so many names.
	HandleNames(method string, names int, h NamesHandler)
}
