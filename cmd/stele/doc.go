// Stele is the server and the command line of Stele in one binary: "stele serve" runs a node, and
// the other commands are clients and offline tools.
//
// Each command has a file of its own. A command parses its arguments, calls the client or the
// package that does the work, and prints the result. It holds no logic of the database.
//
// # Where the paper is silent
//
// The paper has no command line. Command names follow cbt and the HBase shell where the two agree.
//
// # Nouns
//
//   - An app is the state that all commands share: streams, global flags, and properties of the
//     terminal.
//   - A command's function, such as putCommand, returns its cobra.Command. The function groups in
//     main.go lists all of them.
//   - A fault is an error with its exit code and hint. faultOf maps errors of other packages to
//     faults.
//   - A setting is a configuration key: a flag of serve, a STELE_ variable and a line of the file.
//   - A supervisor is the connection to systemd by sd_notify(3).
//   - A devCluster is the cluster of "serve --dev --nodes". Each node, a devNode, is a process of
//     this program.
//   - A rowWriter prints rows: as JSON, as plain lines, or for a terminal.
//
// # Goroutines
//
//	goroutine    started by   ends when                         owns
//	ticker line  startTicker  its stop is called, which joins   the last line of the
//	                          it                                terminal
//	node close   app.stop     the node is closed; after a       the node's Close
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
//
// # Invariants
//
//	C1. Data goes to standard output. Questions, progress, hints and errors go to standard error.
//	C2. Output to a terminal contains no control character from a table, except with --raw.
//	C3. An exit code has one meaning in all commands: see exitcode.go.
//	C4. Every command has a line of help and an example, and accepts --json.
//	C5. Each setting is one line of the table in settings.go. Its flag, its variable, the example
//	    file, stele.yaml(5) and docs/config.md are generated from that table.
package main
