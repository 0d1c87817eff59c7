// Package actfor lets a node use the cluster for a principal that has authenticated to it by another protocol, such as Cloud Bigtable's: the
// node connects to nodes, itself among them, with its own certificate, and first names the principal of the connection (cluster.act_for).
// From then on the other node treats the connection as that principal's: it checks the principal's rights at each call, counts its quotas
// and its share of the workers, and writes its name to the audit log. So a gateway checks no rights.
//
// The paper has no gateways: its clients link a library.
//
// Clients has the clients of such principals. Each call of a principal to the gateway holds one; calls with the same credential share it. A
// client that no call holds is closed a while later, or when another principal needs its place. An open cluster has no principals: one client
// serves all.
//
// # Goroutines
//
//	goroutine  started by  ends when
//	timers     Clients     the idle client has been closed, or Close
//
// # Invariants
//
//	AF1. Only a node may act for a principal, and a connection acts for one principal at most, until it ends.
//	AF2. A principal whose credential is revoked, or has expired, is rejected by its next call, on existing connections too.
//	AF3. A connection that acts for a principal uses no memory and no connections that are reserved for nodes.
package actfor
