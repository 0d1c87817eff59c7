// Package serve has the commands serve and init: it runs a node, or a development cluster.
//
//   - A supervisor is the connection to systemd by sd_notify(3).
//   - A devCluster is the cluster of "serve --dev --nodes". Each node, a devNode, is a process of
//     this program.
//   - A journalHandler logs to systemd's journal.
//
// # Goroutines
//
//	goroutine    started by   ends when                         owns
//	node close   stopNode     the node is closed; after a       the node's Close
//	                          second signal or the deadline,
//	                          when the process exits
//	node start   startWithin  the node is up; if the start      the start
//	                          hangs, when the process exits
//	supervisor   supervisor   its close, which joins it         watchdog notifications
//	dev node     devNode      the node's process exits          the wait for the process
//	dev form     devCluster   the nodes serve, or form          the wait for the nodes
//	                          returns, which joins it
//	dev input    devCluster   input ends, or the process exits  the lines of standard input
//	dev restart  devCluster   the node serves, or the timeout   a client of a restarted node
package serve
