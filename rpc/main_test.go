package rpc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		runBenchServer()
		return
	}
	goleak.VerifyTestMain(m)
}
