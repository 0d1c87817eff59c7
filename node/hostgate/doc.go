// Package hostgate limits the requests of unauthenticated clients by host, for methods whose requests are costly to verify: join requests and
// access tokens. A host with too many rejected requests waits for the next second; other hosts do not. The paper has no such clients: its
// systems run in a network of their own. The package starts no goroutine.
package hostgate
