package node

import (
	"maps"

	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authority"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossipkey"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/tokenauth"
	"github.com/steledb/stele/node/usage"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// guards has the guard of every method. A method without a guard cannot be registered.
var guards = allGuards(map[string]authz.Guard{
	api.MethodPing:   {To: authz.Strangers},
	tokenauth.Method: {To: authz.Strangers},

	api.MethodMutate:          {To: authz.Own},
	api.MethodMutateRows:      {To: authz.Own},
	api.MethodRead:            {To: authz.Own},
	api.MethodReadRows:        {To: authz.Own},
	api.MethodScanOpen:        {To: authz.Own},
	api.MethodScanNext:        {To: authz.Own},
	api.MethodScanClose:       {To: authz.Own}, // the caller's own scans
	api.MethodCheckAndMutate:  {To: authz.Own},
	api.MethodReadModifyWrite: {To: authz.Own},

	api.MethodListTables:    {To: authz.Known},
	api.MethodRoot:          {To: authz.OfTable},
	api.MethodDescribeTable: {To: authz.OfTable},
	api.MethodSampleRowKeys: {To: authz.OfTable},

	api.MethodCreateTable:   {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("table")},
	api.MethodDropTable:     {To: authz.RightOfTable, Right: acl.Admin, Master: true},
	api.MethodSetFamily:     {To: authz.RightOfTable, Right: acl.Admin, Master: true, About: authz.FamilySet},
	api.MethodDropFamily:    {To: authz.RightOfTable, Right: acl.Admin, Master: true, About: authz.FamilyDropped},
	api.MethodCompactTable:  {To: authz.RightOfTable, Right: acl.Admin},
	api.MethodSplitTablet:   {To: authz.RightOfTable, Right: acl.Admin, SelfAudited: true},
	api.MethodMoveTablet:    {To: authz.RightOfTable, Right: acl.Admin, SelfAudited: true},
	api.MethodMergeTablets:  {To: authz.RightOfTable, Right: acl.Admin, SelfAudited: true},
	api.MethodCompactTablet: {To: authz.RightOfTable, Right: acl.Admin, SelfAudited: true},

	api.MethodStatus:          {To: authz.Right, Right: acl.Monitor},
	api.MethodListNodes:       {To: authz.Right, Right: acl.Monitor},
	api.MethodRaftStatus:      {To: authz.Right, Right: acl.Monitor},
	api.MethodUnservedTablets: {To: authz.Right, Right: acl.Read}, // the result contains row keys
	api.MethodDrainNode:       {To: authz.Right, Right: acl.Admin, About: authz.Named("node")},
	api.MethodRemoveNode:      {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("node")},

	api.MethodBlobOpen:        {To: authz.Right, Right: acl.Write},
	api.MethodBlobWrite:       {To: authz.Right, Right: acl.Write},
	api.MethodBlobSeal:        {To: authz.Right, Right: acl.Write},
	api.MethodBlobAbort:       {To: authz.Right, Right: acl.Write},
	api.MethodBlobRead:        {To: authz.Right, Right: acl.Read},
	api.MethodBlobStat:        {To: authz.Right, Right: acl.Read},
	api.MethodBlobList:        {To: authz.Right, Right: acl.Read},
	api.MethodBlobStatus:      {To: authz.Right, Right: acl.Monitor},
	api.MethodBlobDelete:      {To: authz.Right, Right: acl.Admin, About: authz.Named("blob")},
	api.MethodBlobFsck:        {To: authz.Right, Right: acl.Admin, About: authz.Always("all blobs")},
	api.MethodBlobRevive:      {To: authz.Right, Right: acl.Admin, About: authz.Named("blob")},
	api.MethodBlobResumeSweep: {To: authz.Right, Right: acl.Admin, About: authz.Always("the sweep")},

	// These methods check the caller themselves: it must administer the cluster, or the table.
	api.MethodGrant:      {To: authz.Known, Master: true},
	api.MethodRevoke:     {To: authz.Known, Master: true},
	api.MethodListGrants: {To: authz.Known},
	api.MethodAddUser:    {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("user")},
	api.MethodListUsers:  {To: authz.Right, Right: acl.Admin, About: authz.Always("all users")},
	api.MethodRevokeUser: {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("user")},
	api.MethodRemoveUser: {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("user")},

	api.MethodDisableUser: {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("user")},
	api.MethodEnableUser:  {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("user")},
	api.MethodWhoami:      {To: authz.Known},

	// This method checks itself whose usage the caller may see.
	api.MethodUsage: {To: authz.Known},

	api.MethodSetQuota:    {To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true},
	api.MethodListQuotas:  {To: authz.Right, Right: acl.Monitor},
	api.MethodRemoveQuota: {To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true},
	api.MethodSetOwner:    {To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true},

	enrol.MethodJoin:          {To: authz.Strangers},
	authority.MethodRenew:     {},
	authority.MethodKey:       {},
	gossipkey.MethodKey:       {},
	authority.MethodIssuer:    {},
	api.MethodCreateToken:     {To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true},
	api.MethodListTokens:      {To: authz.Right, Right: acl.Admin, About: authz.Always("all tokens")},
	api.MethodRotateAuthority: {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Rotated},
	api.MethodAuthorityStatus: {To: authz.Right, Right: acl.Admin, About: authz.Always("the authority")},
	api.MethodRevokeToken:     {To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("token")},

	methodOnBehalf:      {},
	methodIdentity:      {},
	methodHail:          {},
	methodNudge:         {},
	methodMove:          {},
	methodUnite:         {},
	methodUnserved:      {},
	methodCompact:       {},
	methodTablets:       {},
	usage.Method:        {},
	quotas.MethodReport: {},
	methodSplit:         {},
	methodHeld:          {},
	methodLoad:          {},
	methodUnload:        {},
	methodMerge:         {},
	methodSort:          {},
	methodCompactOne:    {},

	methodStartVoting: {}, formation.MethodHello: {}, formation.MethodPromise: {}, formation.MethodJoin: {},
})

// allGuards adds the methods between nodes of the block store, and those of the lock service.
func allGuards(own map[string]authz.Guard) map[string]authz.Guard {
	all := maps.Clone(own)
	for _, m := range blobapi.Methods() {
		all[m] = authz.Guard{}
	}
	for _, m := range metaapi.Methods() {
		all[m] = lockserver.Guard(m)
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
