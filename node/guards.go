package node

import (
	"maps"

	blobapi "github.com/steledb/stele/blobfs/api"
	metaapi "github.com/steledb/stele/raftmeta/api"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// guards has the guard of every method. A method without a guard cannot be registered.
var guards = allGuards(map[string]guard{
	api.MethodPing: {to: strangers},
	methodAuth:     {to: strangers},

	api.MethodMutate:          {to: own},
	api.MethodMutateRows:      {to: own},
	api.MethodRead:            {to: own},
	api.MethodReadRows:        {to: own},
	api.MethodScanOpen:        {to: own},
	api.MethodScanNext:        {to: own},
	api.MethodScanClose:       {to: own}, // the caller's own scans
	api.MethodCheckAndMutate:  {to: own},
	api.MethodReadModifyWrite: {to: own},

	api.MethodListTables:    {to: known},
	api.MethodRoot:          {to: ofTable},
	api.MethodDescribeTable: {to: ofTable},
	api.MethodSampleRowKeys: {to: ofTable},

	api.MethodCreateTable:   {to: right, right: acl.Admin, master: true, about: named("table")},
	api.MethodDropTable:     {to: rightOfTable, right: acl.Admin, master: true},
	api.MethodSetFamily:     {to: rightOfTable, right: acl.Admin, master: true, about: familySet},
	api.MethodDropFamily:    {to: rightOfTable, right: acl.Admin, master: true, about: familyDropped},
	api.MethodCompactTable:  {to: rightOfTable, right: acl.Admin},
	api.MethodSplitTablet:   {to: rightOfTable, right: acl.Admin, selfAudited: true},
	api.MethodMoveTablet:    {to: rightOfTable, right: acl.Admin, selfAudited: true},
	api.MethodMergeTablets:  {to: rightOfTable, right: acl.Admin, selfAudited: true},
	api.MethodCompactTablet: {to: rightOfTable, right: acl.Admin, selfAudited: true},

	api.MethodStatus:          {to: right, right: acl.Monitor},
	api.MethodListNodes:       {to: right, right: acl.Monitor},
	api.MethodRaftStatus:      {to: right, right: acl.Monitor},
	api.MethodUnservedTablets: {to: right, right: acl.Read}, // the result contains row keys
	api.MethodDrainNode:       {to: right, right: acl.Admin, about: named("node")},
	api.MethodRemoveNode:      {to: right, right: acl.Admin, master: true, about: named("node")},

	api.MethodBlobOpen:        {to: right, right: acl.Write},
	api.MethodBlobWrite:       {to: right, right: acl.Write},
	api.MethodBlobSeal:        {to: right, right: acl.Write},
	api.MethodBlobAbort:       {to: right, right: acl.Write},
	api.MethodBlobRead:        {to: right, right: acl.Read},
	api.MethodBlobStat:        {to: right, right: acl.Read},
	api.MethodBlobList:        {to: right, right: acl.Read},
	api.MethodBlobStatus:      {to: right, right: acl.Monitor},
	api.MethodBlobDelete:      {to: right, right: acl.Admin, about: named("blob")},
	api.MethodBlobFsck:        {to: right, right: acl.Admin, about: always("all blobs")},
	api.MethodBlobRevive:      {to: right, right: acl.Admin, about: named("blob")},
	api.MethodBlobResumeSweep: {to: right, right: acl.Admin, about: always("the sweep")},

	// These methods check the caller themselves: it must administer the cluster, or the table.
	api.MethodGrant:      {to: known, master: true},
	api.MethodRevoke:     {to: known, master: true},
	api.MethodListGrants: {to: known},
	api.MethodAddUser:    {to: right, right: acl.Admin, master: true, about: named("user")},
	api.MethodListUsers:  {to: right, right: acl.Admin, about: always("all users")},
	api.MethodRevokeUser: {to: right, right: acl.Admin, master: true, about: named("user")},
	api.MethodRemoveUser: {to: right, right: acl.Admin, master: true, about: named("user")},

	api.MethodDisableUser: {to: right, right: acl.Admin, master: true, about: named("user")},
	api.MethodEnableUser:  {to: right, right: acl.Admin, master: true, about: named("user")},
	api.MethodWhoAmI:      {to: known},

	// This method checks itself whose usage the caller may see.
	api.MethodUsage: {to: known},

	api.MethodSetQuota:    {to: right, right: acl.Admin, master: true, selfAudited: true},
	api.MethodListQuotas:  {to: right, right: acl.Monitor},
	api.MethodRemoveQuota: {to: right, right: acl.Admin, master: true, selfAudited: true},
	api.MethodSetOwner:    {to: right, right: acl.Admin, master: true, selfAudited: true},

	methodJoinToken:           {to: strangers},
	methodRenew:               {},
	methodAuthority:           {},
	methodGossipKey:           {},
	methodIssuer:              {},
	api.MethodCreateToken:     {to: right, right: acl.Admin, master: true, selfAudited: true},
	api.MethodListTokens:      {to: right, right: acl.Admin, about: always("all tokens")},
	api.MethodRotateAuthority: {to: right, right: acl.Admin, master: true, about: rotated},
	api.MethodAuthorityStatus: {to: right, right: acl.Admin, about: always("the authority")},
	api.MethodRevokeToken:     {to: right, right: acl.Admin, master: true, about: named("token")},

	methodOnBehalf:   {},
	methodIdentity:   {},
	methodHail:       {},
	methodNudge:      {},
	methodMove:       {},
	methodUnite:      {},
	methodUnserved:   {},
	methodCompact:    {},
	methodTablets:    {},
	methodUsage:      {},
	methodQuota:      {},
	methodSplit:      {},
	methodHeld:       {},
	methodLoad:       {},
	methodUnload:     {},
	methodMerge:      {},
	methodSort:       {},
	methodCompactOne: {},

	methodStartVoting: {}, formation.MethodHello: {}, formation.MethodPromise: {}, formation.MethodJoin: {},
})

// allGuards adds the methods between nodes of the block store, and those of the lock service.
func allGuards(own map[string]guard) map[string]guard {
	all := maps.Clone(own)
	for _, m := range blobapi.Methods() {
		all[m] = guard{}
	}
	for _, m := range metaapi.Methods() {
		all[m] = lockGuard(m)
	}
	return all
}

// checkServing returns an error until the node serves.
func (n *Node) checkServing() error {
	if n.serving.Load() {
		return nil
	}
	return n.notServing()
}

// notServing returns the error of calls that come before the node serves.
func (n *Node) notServing() error {
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: "the node does not serve: " + n.unready(), Retryable: true}
}
