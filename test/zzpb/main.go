package main
import ("context";"os";"github.com/steledb/stele/test/simulation/machine/patch")
func main(){ os.MkdirAll("/tmp/m/ov",0o755); if err:=patch.Build(context.Background(),"/tmp/m/ov","github.com/steledb/stele/test/simulation",os.Args[1],os.Args[2:]);err!=nil{println(err.Error());os.Exit(1)} }
