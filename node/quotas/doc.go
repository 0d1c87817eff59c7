// Package quotas applies the quotas of tables and users on a node: it keeps them current, charges requests, reports demand, and,
// on the master, divides rates among the servers. Package quota has the records and the arithmetic. The paper limits only the storage of a client in a shared
// table (§8.3); rates are an addition.
//
// Goroutines: Follow, one for each node, rereads changed quotas and reports demand.
//
// A request without quotas costs one load of a pointer. With quotas it is charged before it is executed, for its table and its user or for
// neither, and what was not executed is refunded. A quota is in force on a node when its change has returned there, and on all others
// within a second. That of a table is found by the table's id, and follows the table to other names. It is not in force while the table is
// dropped. A node sees from the files of such tables that they were renamed, dropped or restored: no change of a table need change a quota.
package quotas
