// Package style holds tests of the source tree: its words, the keys of its logs, copies of files, the numbers of invariants, and the sizes of
// packages, types and functions. There are no exceptions. Words that a test cannot judge, such as "rest", are left to reviews.
package style
