// Package sstable is the immutable sorted file of a tablet.
package sstable
