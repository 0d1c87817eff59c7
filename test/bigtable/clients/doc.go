// Clients runs Google's clients of Cloud Bigtable against clusters of one and of three nodes, one of which is killed and restarted
// meanwhile:
//
//	make test-bigtable [CLIENTS=go,go-sessions,python,python-async,node,java,hbase,beam,cbt]
//
// A client is a program in its language. For some seconds it writes rows, one by one and in batches, and reads some of them. It fails if
// an operation fails after the client's own retries. Then it reads all rows, and compares them. The Java program and that of Beam also
// follow the change stream. That of HBase first makes each kind of change and reads with each filter. It and that of Beam run by TLS,
// too; the latter needs the right to listen at port 443. The quickstart programs of the command line run first, and again when their
// table exists; those in Java by the commands that they begin with.
//
// The clients come from the registries of their languages, into .cache/bigtable-clients, with the versions in this package and, for Java,
// in the quickstart programs. What a machine lacks fails its part of the run, with a sentence.
//
// Its goroutines are those that read the output of a process; they end with it.
package main
