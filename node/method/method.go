// Package method has the interface by which the services of a node register their RPC methods, each with the guard that states which callers may call
// it (package authz). Package dispatch implements it.
package method

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// NamesHandler serves a method whose parameters are names. Its ctx has the caller (authz.SubjectIn).
type NamesHandler func(ctx context.Context, r *api.NamesRequest) (reply.Result, error)

// Registrar registers methods. A method is registered once.
type Registrar interface {
	Handle(method string, mode rpc.Mode, guard authz.Guard, h func(*rpc.Call))
	// HandleNames registers a method whose parameters are so many names.
	HandleNames(method string, names int, guard authz.Guard, h NamesHandler)
}
