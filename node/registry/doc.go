// Package registry knows other clusters, so that operators see the health of all of them side by side: `stele cluster list` and the console's page of
// clusters. The paper's §6 and §9 do not describe it; its operators had such a registry of clusters.
//
// A cluster has a name here, addresses of some of its nodes, a credential for it, and the address of its console. Its record is a file of the lock
// service: /clusters/NAME. The node that answers list_clusters asks each cluster for its status, with the credential of the record; so the user of a
// credential needs the right to monitor that cluster, and users with the right to monitor this one see the answers.
//
// # Goroutines
//
// One for each cluster during list_clusters.
//
// # Invariants
//
//	RG1. A credential leaves the lock service only to open a connection to its cluster: no answer has it.
//	RG2. A node asks a cluster at most once in askEvery, whatever number of users look. Clusters that do not answer hold up the list for askTimeout.
//	RG3. A cluster that answers with another id than when it was added is reported, and not shown as healthy.
//	RG4. Whatever a cluster answers, what is shown of it is bounded and has no control characters, and it takes bounded time and memory.
package registry
