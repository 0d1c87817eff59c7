// Package metarows reads and changes the rows of METADATA: for each tablet its server, its files, its logs to recover and its
// generation (paper §5.1). The root tablet's row is a file of the lock service.
//
// It starts no goroutine. Table and Damaged are safe for concurrent use.
//
// A change of a row succeeds only at the generation that its writer has read, and advances the generation: of two writers of the same
// generation at most one succeeds. A change of unknown outcome is settled by rereading the row, and then has succeeded, has failed, or
// stays unknown; it is never repeated.
package metarows
