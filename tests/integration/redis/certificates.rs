//! A temporary CA with a certificate for servers on the loopback interface and one for a client.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Creates `ca.pem`, `server.pem`, `server.key`, `client.pem` and `client.key`. The server
    /// certificate is valid for 127.0.0.1 and localhost.
    pub fn new() -> Self {
        let certificates = Self { directory: tempfile::tempdir().unwrap() };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let ca = ["-x509", "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.pem"];
        certificates.openssl(&[&["req"], &key[..], &ca[..]].concat());
        certificates.sign("server", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n");
        certificates.sign("client", "extendedKeyUsage=clientAuth\n");
        certificates
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates `NAME.key` and `NAME.pem`, a certificate of this CA with these extensions.
    /// Overwrites existing files.
    pub fn sign(&self, name: &str, extensions: &str) {
        let file = |extension: &str| format!("{name}.{extension}");
        let (key, request, certificate, extension) = (file("key"), file("csr"), file("pem"), file("ext"));
        fs::write(self.path(&extension), extensions).unwrap();
        let subject = format!("/CN={name}");
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            &subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            &extension,
            "-out",
            &certificate,
        ]);
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        let output = command.output().expect("openssl is missing: scripts/install.sh installs it");
        assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
