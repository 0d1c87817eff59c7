// Package style holds tests of the source tree: its words, the keys of its logs, copies of files, and the sizes of packages, types and
// functions. Exceptions are listed in testdata and in the tests. The lists may only shrink.
package style
