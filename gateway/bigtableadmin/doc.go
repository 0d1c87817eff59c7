// Package bigtableadmin serves the administration of Cloud Bigtable's API from a client of the
// cluster: tables, their column families and authorized views, app profiles, and what can be read of instances and clusters.
//
// Every instance name is an alias of the cluster's only namespace (package names), with one cluster
// in it. Instances with tables of their own would need table names of two parts in all interfaces:
// schemas, rights, quotas, METADATA and the command line. What the schema of a table cannot store is rejected with UNIMPLEMENTED and a sentence, never
// ignored: value types other than aggregates of int64, backup policies and row key schemas.
// Changes are made at once, so no long-running operation exists.
//
// App profiles are those of the cluster, and so the same in every instance. "default" always exists; it can be updated. The priority of one is stored, and has no
// effect: requests have no priorities here.
//
// # Departures from Google's service
//
// Tables that other programs have created have the granularity MICROS. The hotness of a tablet is its share of the operations on rows, not of a
// processor.
//
// # Nouns
//
//   - Tables administers tables as the caller of a request may. *client.Tables has the methods.
//   - A resource is what has an IAM policy: a table, a view, an instance, or a backup. The policy is the grants on it as a whole, for an instance those on
//     the cluster; a role is a set of rights. Grants administers them. A backup has no grants of its own: its policy is read-only, and shows those on the cluster.
//   - A rule is a GcRule of the API; a policy is that of a column family here.
//
// # Invariants
//
//	GA1. A garbage collection rule that is created is returned as an equal rule, apart from unions and
//	     intersections of fewer than two rules.
//	GA2. A family without a policy has no rule, not an empty one: cbt prints that as a policy.
//	GA3. Setting an IAM policy that was read changes nothing, and setting any other changes only the grants on the table as a whole, on the view, or on
//	     the cluster. It is one change, from the grants whose etag was compared.
package bigtableadmin
