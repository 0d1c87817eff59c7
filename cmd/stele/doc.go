// Stele is the one binary of the product: a node of the cluster, and everything
// that people do with one from a shell.
//
// A file holds one verb. A verb parses its arguments, calls the client or the
// package that does the work, and prints; what it does is not decided here.
//
// # Where the paper is silent
//
// The paper has no command line. The verbs are those of cbt and the HBase shell
// where they agree.
//
// # Nouns
//
//   - An app is what all verbs share: streams, global flags, and what can be told
//     of the terminal.
//   - A verb's function, such as putCommand, makes its cobra.Command. commands in
//     root.go lists them all.
//   - A fault is an error with the exit code and the hint that it is reported with;
//     faultOf finds them for errors of other packages.
//   - A setting is a key of the configuration: a flag of serve, a STELE_ variable
//     and a line of the file at once.
//   - A supervisor is systemd, which is told how the node is.
//   - A devCluster is the nodes of "serve --dev --nodes": processes of this program, each
//     a devNode.
//   - A rowWriter prints rows: as JSON, as plain lines, or for a terminal.
//
// # Goroutines
//
//	goroutine    started by   ends when                         owns
//	ticker line  startTicker  its stop is called; stop joins    the last line of the
//	                          it                                terminal
//	node close   app.stop     the node is closed; a second      the node's Close
//	                          signal, or the time being up,
//	                          leaves it to the process, which
//	                          then ends
//	node start   startWithin  the node is up; one that hangs    the start
//	                          after a signal ends with the
//	                          process
//	supervisor   supervisor   its close, which joins it         signs of life for systemd
//	dev node     devNode      the node's process ends           the process's end
//	dev form     devCluster   the nodes serve, or form ends,    what it finds
//	                          which joins it
//	dev input    devCluster   input ends, or the process does   the lines of standard input
//	dev again    devCluster   the node serves, or time is up    a client of a node that was
//	                                                            started again
//
// # Invariants
//
//	C1. Data goes to standard output; questions, progress, hints and errors go to
//	    standard error.
//	C2. What goes to a terminal has no control character in it that came from a
//	    table, except after --raw.
//	C3. An exit code means the same for every verb: see exitcode.go.
//	C4. Every command has a line of help, an example, and takes --json.
//	C5. A setting is a line of the table in settings.go, and nowhere else: its flag, its
//	    variable, the example file, stele.yaml(5) and docs/config.md are made of it.
package main
