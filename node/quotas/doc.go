// Package quotas applies the quotas of tables and users on a node: it keeps them current, charges requests, reports demand, and,
// on the master, divides rates among the servers. Package quota has the records and the arithmetic. The paper limits only the storage of a client in a shared
// table (§8.3); rates are an addition.
//
// Goroutines: Follow, one for each node, rereads changed quotas and reports demand.
//
// A request without quotas costs one load of a pointer. With quotas it is charged before it is executed, for its table and its user or for
// neither, and what was not executed is refunded. A quota is in force on a node when its change has returned there, and on all others
// within a second.
package quotas
