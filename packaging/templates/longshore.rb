class Longshore < Formula
  desc "$summary"
  homepage "$homepage"
  version "$version"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
$aarch64_macos
    end
    on_intel do
$x86_64_macos
    end
  end

  on_linux do
    on_arm do
$aarch64_linux
    end
    on_intel do
$x86_64_linux
    end
  end

  def install
    bin.install "longshore"
    generate_completions_from_executable(bin/"longshore", "completions")
  end

  service do
    run [opt_bin/"longshore", "run"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/longshore --version")
  end
end
