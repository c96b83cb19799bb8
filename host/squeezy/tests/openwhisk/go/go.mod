module squeezy/tests/openwhisk

go 1.26.0

require github.com/apache/openwhisk-client-go v0.0.0-20221014112704-1ca897633f2d

require (
	github.com/cloudfoundry/jibber_jabber v0.0.0-20151120183258-bcc4c8345a21 // indirect
	github.com/fatih/color v1.17.0 // indirect
	github.com/google/go-querystring v1.1.0 // indirect
	github.com/hokaccha/go-prettyjson v0.0.0-20211117102719-0474bc63780f // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/nicksnyder/go-i18n v1.10.3 // indirect
	github.com/pelletier/go-toml v1.9.5 // indirect
	golang.org/x/sys v0.26.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)
