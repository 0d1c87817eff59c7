package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// product lists the directories whose packages count: what a node and its clients run.
var product = []string{"raftmeta", "master", "node", "tablet", "blobfs", "client", "rpc", "security", "table", "internal"}

// inProduct reports whether a package counts.
func inProduct(pkg string) bool {
	for _, dir := range product {
		if pkg == dir || strings.HasPrefix(pkg, dir+"/") {
			return true
		}
	}
	return false
}

func main() {
	blocks := flag.Bool("blocks", false, "list functions and blocks that no seed executed, instead of the table")
	only := flag.String("package", "", "list only this package and those below it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: reach [-blocks] [-package P] FILE")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *only, *blocks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the table or the list of a profile.
func run(w io.Writer, profile, only string, blocks bool) error {
	f, err := os.Open(profile)
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := parse(f, func(pkg string) bool {
		return inProduct(pkg) && (only == "" || pkg == only || strings.HasPrefix(pkg, only+"/"))
	})
	if err != nil {
		return err
	}
	if blocks {
		return list(w, all)
	}
	table(w, all)
	return nil
}
